//! `gpu_bridge_state` through memory: the bridge's own state, guarded by a sequence number, without a system call.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use gpu_types::bytes::Record;
use gpu_types::{GPU_BRIDGE_STARTING, GPU_BRIDGE_STATE_VERSION, GpuBridgeState};
use libbpf_rs::MapHandle;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

const SIZE: NonZeroUsize = NonZeroUsize::new(size_of::<GpuBridgeState>()).expect("the state has fields");
const WORDS: usize = SIZE.get() / size_of::<u64>();
const _: () = assert!(SIZE.get() == WORDS * size_of::<u64>() && std::mem::offset_of!(GpuBridgeState, sequence) == 0);

/// The map's only value, in the memory that the kernel and every reader share.
///
/// Readers: read `sequence` until it is even, fence, copy, fence, read it again; what was copied is good when both are the same. Around the writing
/// of a round the sequence is odd as well, so the same protocol over the other maps gives a snapshot of one round.
#[derive(Debug)]
pub(crate) struct SharedState {
    words: Mapping,
    /// What the memory holds, `sequence` aside.
    current: GpuBridgeState,
    /// How many changes that readers wait for are under way, one within the other.
    depth: u32,
}

impl SharedState {
    /// Maps the value of `map` and starts it anew: all zero, but for the version and `helper_pid`. The sequence goes on from where it was.
    pub(crate) fn open(map: &MapHandle, helper_pid: u32) -> nix::Result<Self> {
        let mut shared = Self { words: Mapping::new(map)?, current: GpuBridgeState::default(), depth: 0 };
        shared.start(helper_pid);
        Ok(shared)
    }

    fn start(&mut self, helper_pid: u32) {
        let words = self.words.get();
        let sequence = begin(words);
        self.current = GpuBridgeState {
            sequence,
            version: GPU_BRIDGE_STATE_VERSION,
            helper_pid,
            phase: GPU_BRIDGE_STARTING,
            ..GpuBridgeState::default()
        };
        for (word, value) in words.iter().zip(to_words(&self.current)).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        end(words);
    }

    /// What readers see, `sequence` aside.
    pub(crate) fn current(&self) -> &GpuBridgeState {
        &self.current
    }

    /// Changes the state in one step, as readers see it. Nothing is written when nothing changes; `sequence` and `version` are not the caller's.
    pub(crate) fn update(&mut self, update: impl FnOnce(&mut GpuBridgeState)) {
        let mut new = self.current;
        update(&mut new);
        new.sequence = self.current.sequence;
        new.version = self.current.version;
        if new == self.current {
            return;
        }
        if self.depth == 0 {
            begin(self.words.get());
        }
        self.store_changes(&new);
        if self.depth == 0 {
            end(self.words.get());
        }
        self.current = new;
    }

    /// From here to [`SharedState::release`] readers wait. May be called again in between: they wait until the last release.
    pub(crate) fn hold(&mut self) {
        if self.depth == 0 {
            begin(self.words.get());
            // The system calls that follow write other memory: no store of ours may be seen after theirs.
            fence(Ordering::SeqCst);
        }
        self.depth += 1;
    }

    /// The counterpart of [`SharedState::hold`].
    pub(crate) fn release(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0 {
            fence(Ordering::SeqCst);
            end(self.words.get());
        }
    }

    /// All of a round was written.
    pub(crate) fn count_round(&mut self) {
        let rounds = self.current.rounds + 1;
        self.update(|state| state.rounds = rounds);
    }

    fn store_changes(&self, new: &GpuBridgeState) {
        let changes = to_words(new).zip(to_words(&self.current));
        for (word, (new, _)) in self.words.get().iter().zip(changes).skip(1).filter(|(_, (new, old))| new != old) {
            word.store(new, Ordering::Relaxed);
        }
    }
}

fn to_words(state: &GpuBridgeState) -> impl Iterator<Item = u64> + '_ {
    let (words, _) = state.as_bytes().as_chunks::<8>();
    words.iter().map(|word| u64::from_ne_bytes(*word))
}

/// Makes the sequence odd; one that a killed bridge left odd stays as it is. What is stored afterwards is seen afterwards.
fn begin(words: &[AtomicU64]) -> u64 {
    let odd = words[0].load(Ordering::Relaxed) | 1;
    words[0].store(odd, Ordering::Relaxed);
    fence(Ordering::Release);
    odd
}

/// Makes the sequence even. What was stored before is seen before.
fn end(words: &[AtomicU64]) {
    let sequence = words[0].load(Ordering::Relaxed);
    words[0].store(sequence.wrapping_add(1), Ordering::Release);
}

/// The shared memory of the map's value.
#[derive(Debug)]
struct Mapping(NonNull<AtomicU64>);

impl Mapping {
    #[expect(unsafe_code, reason = "mapping the map's memory is how it is written without a system call")]
    fn new(map: &MapHandle) -> nix::Result<Self> {
        // SAFETY: no address is asked for, so no memory in use is replaced; the kernel refuses a length beyond the map's pages.
        let start = unsafe { mmap(None, SIZE, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, map, 0)? };
        Ok(Self(start.cast()))
    }

    #[expect(unsafe_code, reason = "the mapping is shared with other processes, so it is seen as atomics")]
    fn get(&self) -> &[AtomicU64] {
        // SAFETY: mmap gave at least SIZE bytes, aligned to a page, that stay mapped until self is dropped; AtomicU64 allows writes by others.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), WORDS) }
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "the counterpart of mmap")]
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping, and no reference into it outlives self.
        if let Err(error) = unsafe { munmap(self.0.cast(), SIZE.get()) } {
            log::debug!("cannot unmap gpu_bridge_state: {error}");
        }
    }
}

#[expect(unsafe_code, reason = "a raw pointer makes a type bound to its thread")]
// SAFETY: the memory is the process's, not a thread's, and all access to it is atomic.
unsafe impl Send for Mapping {}
