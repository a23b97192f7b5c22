//! What the bridge says of itself, through an `iter/bpf_map_elem` over `gpu_bridge_state`.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use crate::Error;
use crate::iterator::{Fields, read_lines};
use crate::skeleton::state::GpuStateSkelBuilder;

const PROGRAM: &str = "gpu_state";

/// What the bridge is and does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeLine {
    /// Process id of the bridge.
    pub helper_pid: u32,
    /// `enum gpu_bridge_phase`.
    pub phase: u32,
    /// `enum gpu_bridge_source`.
    pub source: u32,
    /// How many devices are described.
    pub devices: u32,
    /// Time between polls.
    pub poll_interval: Duration,
}

/// Which GPU an index stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceName {
    /// The index that the other maps use.
    pub index: u32,
    /// `enum gpu_bridge_device_phase`.
    pub phase: u32,
    /// Its UUID.
    pub uuid: String,
    /// Its product name.
    pub name: String,
}

#[derive(Debug)]
enum Line {
    Bridge(BridgeLine),
    Device(DeviceName),
}

/// The loaded program, for repeated reads. It holds the map, not its pin.
#[derive(Debug)]
pub struct State {
    link: Link,
}

impl State {
    /// Loads the program with the map pinned in `pin_dir`, which is created when it is not there.
    pub fn open(pin_dir: &Path) -> Result<Self, Error> {
        let load_error = |source| Error::Load { program: PROGRAM, pin_dir: pin_dir.to_owned(), source };
        let mut builder = GpuStateSkelBuilder::default();
        builder.object_builder_mut().pin_root_path(pin_dir).map_err(load_error)?;
        let mut object = MaybeUninit::<OpenObject>::uninit();
        let skeleton = builder.open(&mut object).and_then(OpenSkel::load).map_err(load_error)?;
        let link = skeleton
            .progs
            .gpu_state
            .attach_iter(skeleton.maps.gpu_bridge_state.as_fd())
            .map_err(|source| Error::Attach { program: PROGRAM, source })?;
        Ok(Self { link })
    }

    /// The bridge, `None` while none has written yet, and the devices that it knows.
    pub fn read(&self) -> Result<(Option<BridgeLine>, Vec<DeviceName>), Error> {
        let mut bridge = None;
        let mut devices = Vec::new();
        for line in read_lines(PROGRAM, &self.link, parse)? {
            match line {
                Line::Bridge(line) => bridge = Some(line),
                Line::Device(line) => devices.push(line),
            }
        }
        Ok((bridge, devices))
    }
}

fn parse(line: &str) -> Option<Line> {
    // In the order in which the program prints them.
    if let Some(line) = line.strip_prefix("bridge ") {
        let mut fields = Fields::new(line, 5);
        let bridge = BridgeLine {
            helper_pid: fields.next()?,
            phase: fields.next()?,
            source: fields.next()?,
            devices: fields.next()?,
            poll_interval: Duration::from_nanos(fields.next()?),
        };
        return fields.end().map(|()| Line::Bridge(bridge));
    }
    let mut fields = Fields::new(line.strip_prefix("device ")?, 4);
    Some(Line::Device(DeviceName { index: fields.next()?, phase: fields.next()?, uuid: fields.next()?, name: fields.next()? }))
}
