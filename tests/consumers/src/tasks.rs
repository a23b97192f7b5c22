//! The processes that use a GPU, through an `iter/task` that looks each of them up in `gpu_per_pid`.

use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use crate::iterator::{Fields, read_lines};
use crate::skeleton::tasks::GpuTasksSkelBuilder;
use crate::{Error, primary_device};

const PROGRAM: &str = "gpu_tasks";
const FIELDS: usize = 8;

/// A living process with an entry in `gpu_per_pid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskLine {
    /// Process id in the initial PID namespace.
    pub tgid: u32,
    /// `CLOCK_REALTIME` of the last utilization sample; 0 when there was none.
    pub timestamp_ns: u64,
    /// Over all its devices.
    pub gpu_memory_bytes: u64,
    /// Maximum over its devices.
    pub sm_util_pct: u32,
    /// Maximum over its devices.
    pub mem_util_pct: u32,
    /// The device, when there is exactly one.
    pub device: Option<u8>,
    /// How many devices it uses.
    pub device_count: u8,
    /// The process's name; control characters are shown as `?`.
    pub comm: String,
}

/// The loaded program, for repeated reads. It holds the map, not its pin.
#[derive(Debug)]
pub struct Tasks {
    link: Link,
}

impl Tasks {
    /// Loads the program with the map pinned in `pin_dir`, which is created when it is not there.
    pub fn open(pin_dir: &Path) -> Result<Self, Error> {
        let load_error = |source| Error::Load { program: PROGRAM, pin_dir: pin_dir.to_owned(), source };
        let mut builder = GpuTasksSkelBuilder::default();
        builder.object_builder_mut().pin_root_path(pin_dir).map_err(load_error)?;
        let mut object = MaybeUninit::<OpenObject>::uninit();
        let skeleton = builder.open(&mut object).and_then(OpenSkel::load).map_err(load_error)?;
        let link = skeleton.progs.gpu_tasks.attach().map_err(|source| Error::Attach { program: PROGRAM, source })?;
        Ok(Self { link })
    }

    /// The processes that live now and have an entry, by ascending process id.
    pub fn read(&self) -> Result<Vec<TaskLine>, Error> {
        read_lines(PROGRAM, &self.link, parse)
    }
}

/// The processes with an entry in the map pinned in `pin_dir`, once.
pub fn read(pin_dir: &Path) -> Result<Vec<TaskLine>, Error> {
    Tasks::open(pin_dir)?.read()
}

fn parse(line: &str) -> Option<TaskLine> {
    let mut fields = Fields::new(line, FIELDS);
    // In the order in which the program prints them.
    Some(TaskLine {
        tgid: fields.next()?,
        timestamp_ns: fields.next()?,
        gpu_memory_bytes: fields.next()?,
        sm_util_pct: fields.next()?,
        mem_util_pct: fields.next()?,
        device: primary_device(fields.next()?),
        device_count: fields.next()?,
        comm: fields.next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_spaces_and_several_devices_have_no_primary() {
        let task = parse("12 7 1024 38 21 255 2 my  train job").unwrap();
        assert_eq!((task.tgid, task.gpu_memory_bytes, task.device, task.device_count), (12, 1024, None, 2));
        assert_eq!(task.comm, "my  train job");
        assert_eq!(parse("12 7 1024 38 21 0 1 ").unwrap().comm, "");
        assert_eq!(parse("12 7 1024 38 21 0 1"), None);
        assert_eq!(parse("12 7 1024 38 21 256 1 job"), None);
    }
}
