//! Keys in messages.

use convoy_config::{decode_key, encode_key};
use convoy_proto::config::{PresharedKey, PublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// A preshared key, in base64 on the line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Zeroizing<String>", into = "Zeroizing<String>")]
pub struct Secret(pub PresharedKey);

impl TryFrom<Zeroizing<String>> for Secret {
    type Error = &'static str;

    fn try_from(text: Zeroizing<String>) -> Result<Self, Self::Error> {
        let key = decode_key(&text).ok_or("a preshared key is 32 bytes in base64")?;
        Ok(Self(PresharedKey(*key)))
    }
}

impl From<Secret> for Zeroizing<String> {
    fn from(key: Secret) -> Self {
        encode_key(&key.0.0)
    }
}

/// A public key, in base64 on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(pub PublicKey);

impl TryFrom<String> for Key {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let key = decode_key(&text).ok_or("a public key is 32 bytes in base64")?;
        Ok(Self(PublicKey(*key)))
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        (*encode_key(&key.0.0)).clone()
    }
}
