//! Records from a ring buffer, and the values in them.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::Error;

/// The reading end of a program's ring buffer.
pub(crate) struct Ring<T> {
    program: &'static str,
    buffer: RingBuffer<'static>,
    received: Rc<RefCell<Vec<T>>>,
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("program", &self.program).finish_non_exhaustive()
    }
}

impl<T: 'static> Ring<T> {
    /// Reads `map`, which belongs to `program`; what `decode` does not know is passed over.
    pub(crate) fn new(program: &'static str, map: &dyn MapCore, decode: fn(&[u8]) -> Option<T>) -> Result<Self, Error> {
        let error = |source| Error::RingBuffer { program, source };
        let received = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&received);
        let mut builder = RingBufferBuilder::new();
        let add = move |bytes: &[u8]| {
            sink.borrow_mut().extend(decode(bytes));
            0
        };
        builder.add(map, add).map_err(error)?;
        Ok(Self { program, buffer: builder.build().map_err(error)?, received })
    }

    /// What has come since the last call; waits up to `timeout` for the first.
    pub(crate) fn poll(&self, timeout: Duration) -> Result<Vec<T>, Error> {
        match self.buffer.poll(timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::RingBuffer { program: self.program, source }),
        }
        Ok(self.received.take())
    }
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Text that ends at the first NUL or with the bytes.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
