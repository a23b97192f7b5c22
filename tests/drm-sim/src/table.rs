//! amdgpu's `gpu_metrics`.

/// A table of a version: all bits set where nothing is said, as firmware does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMetrics {
    /// Format and content revision.
    pub version: (u8, u8),
    /// As its struct in the kernel.
    pub size: u16,
    /// 16-bit fields by their place.
    pub words: &'static [(usize, u16)],
    /// `indep_throttle_status` by its place.
    pub throttle: Option<(usize, u64)>,
}

impl GpuMetrics {
    /// As read from the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0xff; usize::from(self.size)];
        bytes[..2].copy_from_slice(&self.size.to_le_bytes());
        (bytes[2], bytes[3]) = self.version;
        for (at, word) in self.words {
            bytes[*at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        if let Some((at, status)) = self.throttle {
            bytes[at..at + 8].copy_from_slice(&status.to_le_bytes());
        }
        bytes
    }

    /// The same with these reasons for throttling; for a version that can tell them.
    #[must_use]
    pub fn throttled(&self, status: u64) -> Self {
        let (at, _) = self.throttle.expect("a version that tells reasons");
        Self { throttle: Some((at, status)), ..*self }
    }
}
