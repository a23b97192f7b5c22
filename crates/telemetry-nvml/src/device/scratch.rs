//! Memory that an answer needs while it is being had, and nobody afterwards: one of it a thread, whatever the number of GPUs.

use std::cell::RefCell;

use telemetry::Stamp;

use crate::{
    pure::stride::ListRow,
    sys::{Field, ListBuffer, ProcessBuffer, RingBuffer},
};

/// What calls write into. Each thread that asks has its own, so that a call which hangs keeps no other GPU's memory.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) list: ListBuffer,
    pub(crate) rows: Vec<ListRow>,
    pub(crate) processes: ProcessBuffer,
    pub(crate) ring: RingBuffer,
    pub(crate) samples: Vec<(Stamp, u32)>,
    pub(crate) fields: Vec<Field>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Lends this thread's scratch memory.
pub(crate) fn with<T>(answer: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(answer)
}
