//! The key `Via` of `[Interface]`.

use crate::key::{CONVOY, Key, Take, Write};

pub(super) static INTERFACE: [Key; 1] = [Key {
    name: "Via",
    values: "NAME, for NAME.conf beside this file, or a path",
    meaning: "The tunnel through which this one goes: its endpoints are reached inside that one (multihop). Both come up \
             and go down together, and there is one interface. The other file needs AllowedIPs that hold the \
             endpoints; of its [Interface], only PrivateKey, Address, MTU and Turn matter.",
    example: "hop",
    take: Take::Interface(|it, line| line.set_path(&mut it.via)),
    write: Write::Interface(|it, out| {
        if let Some(via) = &it.via {
            out.line(via.display());
        }
    }),
    ..CONVOY
}];
