//! Features of an interface, by the ethtool ioctl (`linux/ethtool.h`).

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;

/// The kernel's name of UDP segmentation offload (`ethtool -k`).
pub const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
/// The string set that names the features.
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;
/// Set in the answer to `ETHTOOL_SFEATURES` when the feature cannot be changed.
const ETHTOOL_F_UNSUPPORTED: i32 = 1;

/// Why a feature of an interface is as it was.
#[derive(Debug, thiserror::Error)]
pub enum FeatureError {
    /// No interface has such a name.
    #[error("{0} is too long for an interface")]
    TooLong(String),
    /// The kernel does not know the feature.
    #[error("this kernel has no feature {feature} (fix: Linux 4.18)")]
    Unknown {
        /// The feature.
        feature: String,
    },
    /// The interface has it for good, or not at all.
    #[error("{interface} does not let {feature} be changed")]
    Fixed {
        /// The interface.
        interface: String,
        /// The feature.
        feature: String,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Turns the feature `feature` of `interface` on or off, in the network namespace of the calling
/// thread.
///
/// # Errors
///
/// When there is no such interface or feature, or when it cannot be changed.
pub fn set_feature(interface: &str, feature: &str, on: bool) -> Result<(), FeatureError> {
    let device = Device::open(interface)?;
    let (bit, features) = device.find(interface, feature)?;
    let answer = device
        .set(bit, on, features)
        .map_err(|errno| failed("change", feature, interface, errno))?;
    if answer & ETHTOOL_F_UNSUPPORTED != 0 {
        return Err(FeatureError::Fixed {
            interface: interface.to_owned(),
            feature: feature.to_owned(),
        });
    }
    Ok(())
}

/// Whether the feature `feature` of `interface` is on, in the network namespace of the calling
/// thread.
///
/// # Errors
///
/// When there is no such interface or feature.
pub fn has_feature(interface: &str, feature: &str) -> Result<bool, FeatureError> {
    let device = Device::open(interface)?;
    let (bit, features) = device.find(interface, feature)?;
    device
        .is_on(bit, features)
        .map_err(|errno| failed("look at", feature, interface, errno))
}

fn failed(verb: &str, feature: &str, interface: &str, errno: Errno) -> FeatureError {
    FeatureError::Io {
        doing: format!("{verb} {feature} of {interface}"),
        source: errno.into(),
    }
}

struct Device {
    socket: UdpSocket,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Device {
    fn open(interface: &str) -> Result<Self, FeatureError> {
        if interface.len() >= libc::IFNAMSIZ {
            return Err(FeatureError::TooLong(interface.to_owned()));
        }
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(|source| FeatureError::Io {
            doing: "open a socket".to_owned(),
            source,
        })?;
        Ok(Self { socket, name })
    }

    /// The number of the bit of `feature`, and of how many.
    fn find(&self, interface: &str, feature: &str) -> Result<(usize, usize), FeatureError> {
        let names = self
            .feature_names()
            .map_err(|errno| failed("look for", feature, interface, errno))?;
        let bit = names.iter().position(|name| name == feature);
        let bit = bit.ok_or_else(|| FeatureError::Unknown {
            feature: feature.to_owned(),
        })?;
        Ok((bit, names.len()))
    }

    /// The names of all features, by the number of their bit.
    fn feature_names(&self) -> Result<Vec<String>, Errno> {
        // struct ethtool_sset_info: cmd, reserved, sset_mask (64 bits), data.
        let mut info = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = u64::to_ne_bytes(1 << ETH_SS_FEATURES);
        for (word, bytes) in info[2..4].iter_mut().zip(mask.as_chunks().0) {
            *word = u32::from_ne_bytes(*bytes);
        }
        self.ethtool(&mut info)?;
        let count = info[4] as usize;

        // struct ethtool_gstrings: cmd, string_set, len, data.
        let mut strings = vec![0; 3 + count * ETH_GSTRING_LEN / 4];
        strings[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
        self.ethtool(&mut strings)?;
        let bytes: Vec<u8> = strings[3..]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        Ok(bytes.chunks_exact(ETH_GSTRING_LEN).map(text).collect())
    }

    fn is_on(&self, bit: usize, features: usize) -> Result<bool, Errno> {
        // struct ethtool_gfeatures: cmd, size, then for each 32 bits which of them are available,
        // requested, active, and never changed.
        let blocks = features.div_ceil(32);
        let mut request = vec![0; 2 + blocks * 4];
        request[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
        self.ethtool(&mut request)?;
        let active = request[2 + bit / 32 * 4 + 2];
        Ok(active & (1 << (bit % 32)) != 0)
    }

    fn set(&self, bit: usize, on: bool, features: usize) -> Result<i32, Errno> {
        // struct ethtool_sfeatures: cmd, size, then a pair (valid, requested) for each 32 bits.
        let blocks = features.div_ceil(32);
        let mut request = vec![0; 2 + blocks * 2];
        request[..2].copy_from_slice(&[ETHTOOL_SFEATURES, blocks as u32]);
        let (block, mask) = (2 + bit / 32 * 2, 1 << (bit % 32));
        request[block] = mask;
        request[block + 1] = if on { mask } else { 0 };
        self.ethtool(&mut request)
    }

    fn ethtool(&self, command: &mut [u32]) -> Result<i32, Errno> {
        let mut request = libc::ifreq {
            ifr_name: self.name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_data: command.as_mut_ptr().cast(),
            },
        };
        // SAFETY: `request` names an interface and points to a command whose answer, by its size
        // fields, fits into `command`; both outlive the call.
        let answer = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        Errno::result(answer)
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_features() {
        let names = Device::open("lo").unwrap().feature_names().unwrap();
        assert!(
            names.iter().any(|name| name == "tx-udp-segmentation"),
            "{names:?}"
        );
    }

    #[test]
    fn an_unknown_interface_or_feature_is_an_error() {
        assert!(set_feature("nonsense0", UDP_SEGMENTATION, false).is_err());
        assert!(set_feature("an-overlong-interface", UDP_SEGMENTATION, false).is_err());
        let error = set_feature("lo", "nonsense", false).unwrap_err();
        assert!(error.to_string().contains("no feature nonsense"));
    }
}
