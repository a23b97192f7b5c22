//! The GPUs, through an `iter/bpf_map_elem` over `gpu_device`.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use crate::Error;
use crate::iterator::{Fields, read_lines};
use crate::skeleton::devices::GpuDevicesSkelBuilder;

const PROGRAM: &str = "gpu_devices";
const FIELDS: usize = 22;

/// A used slot of `gpu_device`. The fields are the record's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the record's fields, documented in gpu_types.h")]
pub struct DeviceLine {
    pub index: u32,
    pub timestamp_ns: u64,
    pub sm_util_pct: u32,
    pub mem_util_pct: u32,
    pub mem_total: u64,
    pub mem_used: u64,
    pub mem_reserved: u64,
    pub temp_c: u32,
    pub power_mw: u32,
    pub sm_clock_mhz: u32,
    pub mem_clock_mhz: u32,
    pub throttle_reasons: u64,
    pub pcie_tx_kbps: u64,
    pub pcie_rx_kbps: u64,
    pub enc_util_pct: u32,
    pub dec_util_pct: u32,
    pub nvlink_tx_kbps: u64,
    pub nvlink_rx_kbps: u64,
    pub ecc_corrected_total: u64,
    pub ecc_uncorrected_total: u64,
    pub fan_speed_pct: u32,
    pub compute_mode: u32,
}

/// The loaded program, for repeated reads. It holds the map, not its pin.
#[derive(Debug)]
pub struct Devices {
    link: Link,
}

impl Devices {
    /// Loads the program with the map pinned in `pin_dir`, which is created when it is not there.
    pub fn open(pin_dir: &Path) -> Result<Self, Error> {
        let load_error = |source| Error::Load { program: PROGRAM, pin_dir: pin_dir.to_owned(), source };
        let mut builder = GpuDevicesSkelBuilder::default();
        builder.object_builder_mut().pin_root_path(pin_dir).map_err(load_error)?;
        let mut object = MaybeUninit::<OpenObject>::uninit();
        let skeleton = builder.open(&mut object).and_then(OpenSkel::load).map_err(load_error)?;
        let link = skeleton
            .progs
            .gpu_devices
            .attach_iter(skeleton.maps.gpu_device.as_fd())
            .map_err(|source| Error::Attach { program: PROGRAM, source })?;
        Ok(Self { link })
    }

    /// The used slots as they are now, in the order of their indices.
    pub fn read(&self) -> Result<Vec<DeviceLine>, Error> {
        read_lines(PROGRAM, &self.link, parse)
    }
}

/// The used slots of the map pinned in `pin_dir`, once.
pub fn read(pin_dir: &Path) -> Result<Vec<DeviceLine>, Error> {
    Devices::open(pin_dir)?.read()
}

fn parse(line: &str) -> Option<DeviceLine> {
    let mut fields = Fields::new(line, FIELDS);
    // In the order in which the program prints them.
    let device = DeviceLine {
        index: fields.next()?,
        timestamp_ns: fields.next()?,
        sm_util_pct: fields.next()?,
        mem_util_pct: fields.next()?,
        mem_total: fields.next()?,
        mem_used: fields.next()?,
        mem_reserved: fields.next()?,
        temp_c: fields.next()?,
        power_mw: fields.next()?,
        sm_clock_mhz: fields.next()?,
        mem_clock_mhz: fields.next()?,
        throttle_reasons: fields.next()?,
        pcie_tx_kbps: fields.next()?,
        pcie_rx_kbps: fields.next()?,
        enc_util_pct: fields.next()?,
        dec_util_pct: fields.next()?,
        nvlink_tx_kbps: fields.next()?,
        nvlink_rx_kbps: fields.next()?,
        ecc_corrected_total: fields.next()?,
        ecc_uncorrected_total: fields.next()?,
        fan_speed_pct: fields.next()?,
        compute_mode: fields.next()?,
    };
    fields.end()?;
    Some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_missing_surplus_or_foreign_field_is_refused() {
        let line = (0..FIELDS).map(|value| value.to_string()).collect::<Vec<_>>().join(" ");
        let device = parse(&line).unwrap();
        assert_eq!((device.index, device.timestamp_ns, device.power_mw, device.compute_mode), (0, 1, 8, 21));
        assert_eq!(parse(&line.replace(" 21", "")), None);
        assert_eq!(parse(&format!("{line} 22")), None);
        assert_eq!(parse(&line.replace(" 7 ", " -7 ")), None);
    }
}
