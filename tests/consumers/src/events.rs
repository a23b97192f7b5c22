//! Kernel events joined with GPU telemetry at the moment they happen.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, OpenObject, RingBuffer, RingBufferBuilder};

use crate::ring::{text, u32_at, u64_at};
use crate::skeleton::events::GpuEventsSkelBuilder;
use crate::{Error, primary_device};

const PROGRAM: &str = "gpu_events";
const EVENT_BYTES: usize = 64;
const NO_SAMPLE: u64 = u64::MAX;

/// What makes an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A thread of the process leaves the CPU.
    ContextSwitch,
    /// A thread of the process makes the system call with this number.
    SystemCall(i64),
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The thread left the CPU.
    ContextSwitch,
    /// The thread made the system call.
    SystemCall,
}

/// One event of a process that uses a GPU, with what the maps said at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `CLOCK_BOOTTIME` of the event.
    pub boottime_ns: u64,
    /// Process id in the initial PID namespace.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// Why there is an event.
    pub cause: Cause,
    /// GPU memory of the process over all its devices.
    pub gpu_memory_bytes: u64,
    /// The process's own utilization, maximum over its devices.
    pub sm_util_pct: u32,
    /// The process's own memory utilization, maximum over its devices.
    pub mem_util_pct: u32,
    /// Utilization of the whole device, of the busiest one when there are several.
    pub device_sm_util_pct: u32,
    /// The device, when there is exactly one.
    pub device: Option<u8>,
    /// How many devices the process uses.
    pub device_count: u8,
    /// How old the process's utilization sample was; `None` when there was none.
    pub sample_age: Option<Duration>,
}

/// The attached program and its ring buffer.
#[derive(Debug)]
pub struct Events {
    // Dropped first: no event comes after that.
    _link: Link,
    ring: RingBuffer<'static>,
    received: Rc<RefCell<Vec<Event>>>,
    counters: MapHandle,
}

impl Events {
    /// Loads the program with the maps pinned in `pin_dir`, which are created when they are not there, and attaches it. There are events
    /// only while the bridge's data is at most `stale_threshold_ms` old.
    pub fn attach(pin_dir: &Path, stale_threshold_ms: u64, trigger: Trigger) -> Result<Self, Error> {
        let load_error = |source| Error::Load { program: PROGRAM, pin_dir: pin_dir.to_owned(), source };
        let attach_error = |source| Error::Attach { program: PROGRAM, source };
        let ring_error = |source| Error::RingBuffer { program: PROGRAM, source };

        let mut builder = GpuEventsSkelBuilder::default();
        builder.object_builder_mut().pin_root_path(pin_dir).map_err(load_error)?;
        let mut object = MaybeUninit::<OpenObject>::uninit();
        let mut open = builder.open(&mut object).map_err(load_error)?;
        open.progs.on_context_switch.set_autoload(trigger == Trigger::ContextSwitch);
        open.progs.on_system_call.set_autoload(trigger != Trigger::ContextSwitch);
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.stale_threshold_ms = stale_threshold_ms;
            if let Trigger::SystemCall(number) = trigger {
                rodata.system_call = number;
            }
        }
        let skeleton = open.load().map_err(load_error)?;

        let received = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&received);
        let mut ring = RingBufferBuilder::new();
        ring.add(&skeleton.maps.events, move |bytes| {
            sink.borrow_mut().extend(decode(bytes));
            0
        })
        .map_err(ring_error)?;
        let ring = ring.build().map_err(ring_error)?;
        let counters = MapHandle::try_from(&skeleton.maps.bss).map_err(ring_error)?;

        let program = match trigger {
            Trigger::ContextSwitch => &skeleton.progs.on_context_switch,
            Trigger::SystemCall(_) => &skeleton.progs.on_system_call,
        };
        Ok(Self { _link: program.attach().map_err(attach_error)?, ring, received, counters })
    }

    /// What has happened since the last call, in the order in which it happened on each CPU; waits up to `timeout` for the first event.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<Event>, Error> {
        match self.ring.poll(timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::RingBuffer { program: PROGRAM, source }),
        }
        Ok(self.received.take())
    }

    /// How many events were lost because [`Events::poll`] was not called often enough.
    pub fn dropped(&self) -> Result<u64, Error> {
        let value =
            self.counters.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|source| Error::RingBuffer { program: PROGRAM, source })?;
        Ok(value.as_deref().and_then(|bytes| u64_at(bytes, 0)).unwrap_or_default())
    }
}

/// `struct gpu_event` of `bpf/gpu_events.h`. `None` for a record of another size, which that program cannot send.
fn decode(bytes: &[u8]) -> Option<Event> {
    if bytes.len() != EVENT_BYTES {
        return None;
    }
    let sample_age_ns = u64_at(bytes, 16)?;
    Some(Event {
        boottime_ns: u64_at(bytes, 0)?,
        gpu_memory_bytes: u64_at(bytes, 8)?,
        sample_age: (sample_age_ns != NO_SAMPLE).then(|| Duration::from_nanos(sample_age_ns)),
        tgid: u32_at(bytes, 24)?,
        tid: u32_at(bytes, 28)?,
        sm_util_pct: u32_at(bytes, 32)?,
        mem_util_pct: u32_at(bytes, 36)?,
        device_sm_util_pct: u32_at(bytes, 40)?,
        device: primary_device(bytes[44]),
        device_count: bytes[45],
        cause: if bytes[46] == 0 { Cause::ContextSwitch } else { Cause::SystemCall },
        comm: text(&bytes[48..64]),
    })
}
