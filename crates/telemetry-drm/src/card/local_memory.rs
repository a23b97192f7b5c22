//! Memory of an Intel GPU: what there is, from the cgroup controller for device memory (`dmem.capacity`, about Linux 6.14); what is used, the
//! sum over its processes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::parse::number;

const SECOND_NS: u64 = 1_000_000_000;
/// The controller may be mounted later than the source is opened.
const RETRY_NS: u64 = 60 * SECOND_NS;

/// The size of one card's local memory.
#[derive(Debug)]
pub(crate) struct LocalMemory {
    path: PathBuf,
    region: String,
    total_bytes: Option<u64>,
    retry_ns: u64,
}

impl LocalMemory {
    /// Of the card at this place on the bus.
    pub(crate) fn new(root: &Path, pci: &str) -> Self {
        Self { path: root.join("sys/fs/cgroup/dmem.capacity"), region: format!("drm/{pci}/vram"), total_bytes: None, retry_ns: 0 }
    }

    /// All of it, where the kernel says.
    pub(crate) fn total_bytes(&mut self, now_ns: u64) -> Option<u64> {
        if self.total_bytes.is_none() && now_ns >= self.retry_ns {
            self.retry_ns = now_ns.saturating_add(RETRY_NS);
            self.total_bytes = fs::read_to_string(&self.path).ok().and_then(|text| capacity(&text, &self.region));
        }
        self.total_bytes
    }
}

/// The sum of the regions whose name begins so: a GPU of several tiles has `vram0`, `vram1`.
fn capacity(text: &str, region: &str) -> Option<u64> {
    let sizes = text.lines().filter_map(|line| {
        let (name, size) = line.split_once(' ')?;
        name.starts_with(region).then(|| number::<u64>(size.as_bytes()))?
    });
    sizes.reduce(u64::saturating_add).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_the_card_add_up() {
        let text =
            "drm/0000:03:00.0/vram0 8514437120\ndrm/0000:03:00.0/vram1 100\ndrm/0000:03:00.0/stolen 67108864\ndrm/0000:0b:00.0/vram0 7\n";
        assert_eq!(capacity(text, "drm/0000:03:00.0/vram"), Some(8_514_437_220));
        assert_eq!(capacity(text, "drm/0000:0b:00.0/vram"), Some(7));
        assert_eq!(capacity(text, "drm/0000:04:00.0/vram"), None);
        assert_eq!(capacity("drm/0000:03:00.0/vram0 max\n", "drm/0000:03:00.0/vram"), None);
    }
}
