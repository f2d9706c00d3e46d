//! Features of an interface, by the ethtool ioctl (`linux/ethtool.h`).

use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use anyhow::Context as _;
use nix::errno::Errno;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_SFEATURES: u32 = 0x3b;
/// The string set that names the features.
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;
/// Set in the answer to `ETHTOOL_SFEATURES` when the feature cannot be changed.
const ETHTOOL_F_UNSUPPORTED: i32 = 1;

/// Turns the feature `feature` of `interface` off.
pub(super) fn turn_off(interface: &str, feature: &str) -> anyhow::Result<()> {
    let device = Device::open(interface)?;
    let names = device.feature_names().context("list its features")?;
    let bit = names
        .iter()
        .position(|name| name == feature)
        .with_context(|| format!("this kernel has no feature {feature} (fix: Linux 4.18)"))?;
    let answer = device
        .clear_feature(bit, names.len())
        .with_context(|| format!("change {feature} of {interface}"))?;
    anyhow::ensure!(
        answer & ETHTOOL_F_UNSUPPORTED == 0,
        "{interface} does not let {feature} be changed"
    );
    Ok(())
}

struct Device {
    socket: UdpSocket,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Device {
    fn open(interface: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(
            interface.len() < libc::IFNAMSIZ,
            "{interface} is too long for an interface"
        );
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            *to = from.cast_signed();
        }
        let socket = UdpSocket::bind("0.0.0.0:0").context("open a socket")?;
        Ok(Self { socket, name })
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

    fn clear_feature(&self, bit: usize, features: usize) -> Result<i32, Errno> {
        // struct ethtool_sfeatures: cmd, size, then a pair (valid, requested) for each 32 bits.
        let blocks = features.div_ceil(32);
        let mut request = vec![0; 2 + blocks * 2];
        request[..2].copy_from_slice(&[ETHTOOL_SFEATURES, blocks as u32]);
        request[2 + bit / 32 * 2] = 1 << (bit % 32);
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
        assert!(turn_off("nonsense0", "tx-udp-segmentation").is_err());
        assert!(turn_off("an-overlong-interface", "tx-udp-segmentation").is_err());
        let error = turn_off("lo", "nonsense").unwrap_err();
        assert!(error.to_string().contains("no feature nonsense"));
    }
}
