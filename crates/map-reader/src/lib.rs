//! The read side of the pinned `gpu_*` BPF maps.
//!
//! Everything is read-only: the pins are opened with `BPF_F_RDONLY`, a bridge that writes is not disturbed, and a user without capabilities
//! can read what the pins' modes let him read. Building needs neither clang nor libclang.
//!
//! Each map stands for itself: one that is missing, foreign or unreadable is an error of that map, told at every read of it, and the others
//! are read all the same.
//!
//! [`Reader::snapshot`] reads everything as of one round, [`Reader::wait_for_round`] waits for the next one and follows a bridge that restarts.
//! `examples/` has programs to copy.
//!
//! ```no_run
//! use map_reader::{Freshness, Order, Reader, boottime_now_ns, default_max_age};
//!
//! let reader = Reader::open("/sys/fs/bpf");
//! let max_age = default_max_age(reader.state().ok().and_then(|state| state.poll_interval()));
//! if Freshness::of(&reader.meta()?, boottime_now_ns()?, max_age).is_fresh() {
//!     for (pid, process) in reader.processes(Order::ByKey)? {
//!         println!("process {pid} holds {} bytes on {} GPUs", process.used_gpu_memory_total, process.device_count);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod entries;
mod error;
mod follow;
mod freshness;
mod metric;
mod open;
mod reader;
mod snapshot;
mod state;

pub use error::{Error, chain};
pub use follow::Round;
pub use freshness::{Freshness, age, boottime_now_ns, default_max_age, sample_age, to_boottime_ns, to_realtime_ns};
pub use metric::Metric;
pub use reader::{Map, Order, Reader};
pub use snapshot::{Consistency, Snapshot};
pub use state::{BridgeState, DevicePhase, DeviceState, Phase, Source};
