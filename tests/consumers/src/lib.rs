//! BPF programs that read the pinned maps, as their users write them.
//!
//! Each module is one program with its userspace half: [`devices`], [`tasks`] and [`state`] print through BPF iterators, [`events`] joins what
//! happens in the kernel with what the GPU does, and [`launches`], [`exits`] and [`starvation`] show one such join each, to be copied. All of them reuse the maps pinned in a directory by name, or create them there for a
//! bridge that starts later.

pub mod devices;
mod error;
pub mod events;
pub mod exits;
mod iterator;
pub mod launches;
mod ring;
pub mod starvation;
pub mod state;
pub mod table;
pub mod tasks;

pub use error::Error;

/// `Some(index)` of the one device that a process uses; `None` when it uses several (`GPU_DEVICE_PRIMARY_MULTI`).
fn primary_device(index: u8) -> Option<u8> {
    (index != 0xFF).then_some(index)
}

#[allow(
    clippy::all,
    clippy::restriction,
    clippy::pedantic,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unsafe_code,
    unused_qualifications,
    reason = "generated code"
)]
mod skeleton {
    pub(crate) mod devices {
        include!(concat!(env!("OUT_DIR"), "/gpu_devices.skel.rs"));
    }
    pub(crate) mod events {
        include!(concat!(env!("OUT_DIR"), "/gpu_events.skel.rs"));
    }
    pub(crate) mod exits {
        include!(concat!(env!("OUT_DIR"), "/gpu_exits.skel.rs"));
    }
    pub(crate) mod launches {
        include!(concat!(env!("OUT_DIR"), "/gpu_launches.skel.rs"));
    }
    pub(crate) mod starvation {
        include!(concat!(env!("OUT_DIR"), "/gpu_starvation.skel.rs"));
    }
    pub(crate) mod state {
        include!(concat!(env!("OUT_DIR"), "/gpu_state.skel.rs"));
    }
    pub(crate) mod tasks {
        include!(concat!(env!("OUT_DIR"), "/gpu_tasks.skel.rs"));
    }
}
