//! The TUN driver of Linux (Documentation/networking/tuntap.rst).

use std::{
    io::{Error, ErrorKind, Result},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::PollFlags,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};
use tun_rs::DeviceBuilder;

use super::{Offload, OpenError, PacketIo, Stop};
use convoy_packet::vnet::VNET_LEN;
use convoy_types::Switch;

/// Length of the kernel's queue of packets that wait for the reader thread (`txqueuelen`), in packets.
///
/// A longer queue loses fewer packets to bursts and to busy processors, and delays those behind a backlog
/// more. The kernel's default is 500 for a TUN, and 1,000 for Ethernet.
pub const TX_QUEUE_LEN: u32 = 2000;

/// Super-packets of TCP, also with the ECN flag CWR.
const TCP_OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

type Opened = std::result::Result<(LinuxTun, Offload), OpenError>;

pub(super) fn open(name: &str, offload: Switch) -> Opened {
    check_name(name)?;
    let (fd, vnet_hdr) = with_what_there_is(offload, |vnet_hdr| make(name, vnet_hdr))?;
    let (tun, offload) = LinuxTun::new(fd, vnet_hdr)?;
    if let Err(error) = tun.set_queue_len() {
        tracing::warn!(name, %error, "Cannot set txqueuelen");
    }
    Ok((tun, offload))
}

pub(super) fn adopt(fd: OwnedFd) -> Opened {
    let request = interface_of(fd.as_raw_fd()).map_err(|_| OpenError::NotATun)?;
    // SAFETY: TUNGETIFF filled in the flags.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    if flags & libc::IFF_TUN == 0 {
        return Err(OpenError::NotATun);
    }
    LinuxTun::new(fd, flags & libc::IFF_VNET_HDR != 0)
}

pub(super) fn is_attached(fd: BorrowedFd<'_>) -> bool {
    interface_of(fd.as_raw_fd()).is_ok()
}

fn check_name(name: &str) -> std::result::Result<(), OpenError> {
    if name.len() >= libc::IFNAMSIZ {
        return Err(OpenError::NameTooLong(name.to_owned()));
    }
    let is_reserved = matches!(name, "" | "." | "..");
    let is_forbidden = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
    if is_reserved || name.contains(is_forbidden) {
        return Err(OpenError::InvalidName(name.to_owned()));
    }
    Ok(())
}

/// Calls `make` with a virtio header and, if that is refused and not required, without one.
fn with_what_there_is<T>(
    offload: Switch,
    make: impl Fn(bool) -> std::result::Result<T, OpenError>,
) -> std::result::Result<(T, bool), OpenError> {
    let vnet_hdr = offload != Switch::Off;
    match make(vnet_hdr) {
        Err(OpenError::NoOffload { name, source }) if offload == Switch::Auto => {
            tracing::info!(name, error = %source, "The kernel refuses TUN offload: each packet is read and written by itself");
            Ok((make(false)?, false))
        }
        made => Ok((made?, vnet_hdr)),
    }
}

/// Creates the interface through tun-rs, which also creates a missing device node if permitted.
fn make(name: &str, vnet_hdr: bool) -> std::result::Result<OwnedFd, OpenError> {
    let built = DeviceBuilder::new()
        .name(name)
        .with(|builder| {
            builder.offload(vnet_hdr);
        })
        .inherit_enable_state()
        .build_sync();
    match built {
        // SAFETY: the descriptor is open, and its former owner has released it.
        Ok(device) => Ok(unsafe { OwnedFd::from_raw_fd(device.into_raw_fd()) }),
        Err(error) => Err(open_error(name, vnet_hdr, error)),
    }
}

fn open_error(name: &str, vnet_hdr: bool, error: Error) -> OpenError {
    let name = name.to_owned();
    match error.raw_os_error() {
        Some(libc::ENOENT) => OpenError::Missing,
        Some(libc::ENODEV | libc::ENXIO) => OpenError::NoDriver,
        Some(libc::EACCES) => OpenError::NodeForbidden,
        Some(libc::EPERM) => OpenError::NotPermitted(name),
        Some(libc::EBUSY) => OpenError::Busy(name),
        Some(libc::EINVAL) if exists(&name) => OpenError::Taken(name),
        Some(libc::EINVAL) if vnet_hdr => OpenError::NoOffload {
            name,
            source: error,
        },
        _ => OpenError::Other(error),
    }
}

fn exists(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

#[derive(Debug)]
pub(super) struct LinuxTun {
    fd: OwnedFd,
    /// A socket in the network namespace that the interface was opened in, for requests about it.
    control: OwnedFd,
}

impl LinuxTun {
    fn new(fd: OwnedFd, vnet_hdr: bool) -> std::result::Result<(Self, Offload), OpenError> {
        let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL).map_err(Error::from)?);
        fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map_err(Error::from)?;
        let control = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map_err(Error::from)?;
        let tun = Self { fd, control };
        if vnet_hdr {
            tun.agree_on_headers()?;
        }
        let offload = probe_offload(vnet_hdr, |offloads| tun.set_offload(offloads));
        Ok((tun, offload))
    }

    /// Sets the virtio headers' length and byte order, which a former owner of the TUN may have changed.
    fn agree_on_headers(&self) -> Result<()> {
        // Also overrules TUNSETVNETBE, which few kernels have.
        let is_little = libc::c_int::from(cfg!(target_endian = "little"));
        self.exchange(libc::TUNSETVNETLE, is_little)?;
        let len = VNET_LEN as libc::c_int;
        self.exchange(libc::TUNSETVNETHDRSZ, len)?;
        if self.exchange(libc::TUNGETVNETHDRSZ, 0)? != len {
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(())
    }

    /// Makes a request whose argument is an `int` that the kernel reads or writes.
    fn exchange(&self, request: libc::Ioctl, mut value: libc::c_int) -> Result<libc::c_int> {
        // SAFETY: the kernel reads or writes one `int` there, and the descriptor is open.
        let status = unsafe { libc::ioctl(self.fd.as_raw_fd(), request, &raw mut value) };
        Errno::result(status)?;
        Ok(value)
    }

    fn set_offload(&self, offloads: libc::c_uint) -> bool {
        // SAFETY: the argument of this request is a number, and the descriptor is open.
        unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::TUNSETOFFLOAD,
                libc::c_ulong::from(offloads),
            ) == 0
        }
    }

    fn set_queue_len(&self) -> Result<()> {
        let mut request = interface_of(self.fd.as_raw_fd())?;
        request.ifr_ifru.ifru_metric = TX_QUEUE_LEN as i32;
        self.request(libc::SIOCSIFTXQLEN as _, &mut request)
    }

    fn request(&self, number: libc::Ioctl, request: &mut libc::ifreq) -> Result<()> {
        ioctl(self.control.as_raw_fd(), number, request)
    }
}

impl PacketIo for LinuxTun {
    fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        Ok(rustix::io::read(&self.fd, buffer)?)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize> {
        Ok(rustix::io::write(&self.fd, bytes)?)
    }

    fn readable(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn wait_writable(&self, stop: &Stop) -> Result<bool> {
        stop.wait_or(self.fd.as_fd(), PollFlags::POLLOUT)
    }

    fn name(&self) -> Result<String> {
        let request = interface_of(self.fd.as_raw_fd())?;
        let name: Vec<u8> = request
            .ifr_name
            .iter()
            .map(|byte| *byte as u8)
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8(name).map_err(|error| Error::new(ErrorKind::InvalidData, error))
    }

    fn mtu(&self) -> Result<u16> {
        let mut request = interface_of(self.fd.as_raw_fd())?;
        self.request(libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: SIOCGIFMTU filled in the MTU.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
    }

    fn network_namespace(&self) -> Result<OwnedFd> {
        // SAFETY: this request takes no argument, and the descriptor is open.
        let namespace = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TUNGETDEVNETNS) };
        if namespace < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the kernel has just opened the descriptor, and nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(namespace) })
    }

    fn set_mtu(&self, mtu: u16) -> Result<()> {
        let mut request = interface_of(self.fd.as_raw_fd())?;
        request.ifr_ifru.ifru_mtu = i32::from(mtu);
        self.request(libc::SIOCSIFMTU as _, &mut request)
    }
}

/// Asks for TCP first and then for UDP as well, which came with Linux 6.2.
fn probe_offload(vnet_hdr: bool, accepts: impl Fn(libc::c_uint) -> bool) -> Offload {
    let tcp = vnet_hdr && accepts(TCP_OFFLOADS);
    let udp = tcp && accepts(TCP_OFFLOADS | UDP_OFFLOADS);
    Offload { vnet_hdr, tcp, udp }
}

/// The interface's present name and its flags.
fn interface_of(fd: RawFd) -> Result<libc::ifreq> {
    // SAFETY: all zeros is an empty request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    ioctl(fd, libc::TUNGETIFF, &mut request)?;
    Ok(request)
}

fn ioctl(fd: RawFd, number: libc::Ioctl, request: &mut libc::ifreq) -> Result<()> {
    // SAFETY: the kernel reads and writes at most one `ifreq` there, for every request made here.
    if unsafe { libc::ioctl(fd, number, std::ptr::from_mut(request)) } < 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_refuse_are_refused_with_the_reason() {
        assert!(matches!(
            check_name("abcdefghijklmnop"),
            Err(OpenError::NameTooLong(_))
        ));
        for name in ["", ".", "..", "a/b", "a b", "a:b", "a\0b"] {
            assert!(
                matches!(check_name(name), Err(OpenError::InvalidName(_))),
                "{name:?}"
            );
        }
        assert!(check_name("abcdefghijklmno").is_ok());
    }

    #[test]
    fn each_errno_names_its_fix() {
        let text = |errno| open_error("none0", true, Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::ENOENT).contains("modprobe tun"));
        assert!(text(libc::ENODEV).contains("modprobe tun"));
        assert!(text(libc::EACCES).contains("chmod 0666"));
        assert!(text(libc::EPERM).contains("CAP_NET_ADMIN"));
        assert!(text(libc::EBUSY).contains("in use"));
        assert!(text(libc::EINVAL).contains("offload"));
    }

    #[test]
    fn a_kernel_that_refuses_offload_gives_a_plain_tun_unless_offload_was_asked_for() {
        let refuses = |vnet_hdr: bool| match vnet_hdr {
            true => Err(open_error(
                "none0",
                true,
                Error::from_raw_os_error(libc::EINVAL),
            )),
            false => Ok("plain"),
        };
        let has_all = |_| Ok("made");
        let busy = |_| Err::<&str, _>(OpenError::Busy("none0".to_owned()));
        let made = with_what_there_is(Switch::Auto, refuses).unwrap();
        assert_eq!(made, ("plain", false));
        let refused = with_what_there_is(Switch::On, refuses);
        assert!(matches!(refused, Err(OpenError::NoOffload { .. })));
        for (asked, vnet_hdr) in [
            (Switch::Auto, true),
            (Switch::On, true),
            (Switch::Off, false),
        ] {
            let made = with_what_there_is(asked, has_all).unwrap();
            assert_eq!(made, ("made", vnet_hdr));
            let taken = with_what_there_is(asked, busy);
            assert!(matches!(taken, Err(OpenError::Busy(_))));
        }
    }

    #[test]
    fn what_the_kernel_accepts_is_what_the_device_has() {
        let accepts = |most: libc::c_uint| move |offloads: libc::c_uint| offloads & !most == 0;
        let all = TCP_OFFLOADS | UDP_OFFLOADS;
        for (vnet_hdr, most, tcp, udp) in [
            (true, all, true, true),
            (true, TCP_OFFLOADS, true, false),
            (true, 0, false, false),
            (false, all, false, false),
        ] {
            let probed = probe_offload(vnet_hdr, accepts(most));
            assert_eq!(probed, Offload { vnet_hdr, tcp, udp });
        }
    }

    #[test]
    fn a_descriptor_of_something_else_is_not_adopted() {
        let fd = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(matches!(adopt(fd), Err(OpenError::NotATun)));
    }
}
