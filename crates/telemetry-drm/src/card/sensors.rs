//! What a card's files say, whichever driver wrote them. Which files those are, `amdgpu` and `intel` know.

use telemetry::{Memory, Metrics};

use super::{Card, Driver, amdgpu, intel, power::Power};
use crate::{
    gpu_metrics::GpuMetrics,
    sysfs::{Attribute, Files},
};

/// `gpu_metrics` is at most a page long.
const TABLE_BYTES: usize = 4096;

/// The files of one card that are there for a driver; what has none is absent.
#[derive(Debug, Default)]
pub(crate) struct Sensors {
    pub(crate) busy: Option<Attribute>,
    pub(crate) memory_busy: Option<Attribute>,
    /// Local memory, and on an APU the system memory that the GPU may map: the parts add up.
    pub(crate) memory: Vec<MemoryPart>,
    /// The first that answers counts.
    pub(crate) temperature: Vec<Attribute>,
    pub(crate) power: Option<Power>,
    /// 0 to 255.
    pub(crate) fan: Option<Attribute>,
    pub(crate) core_clock: Option<Clock>,
    pub(crate) memory_clock: Option<Clock>,
    pub(crate) table: Option<Table>,
    pub(crate) throttle: Option<intel::Throttle>,
    pub(crate) ecc: Option<Attribute>,
    pub(crate) has_hwmon: bool,
}

/// A total, which does not change, and what is used of it.
#[derive(Debug)]
pub(crate) struct MemoryPart {
    total: Attribute,
    used: Attribute,
    known_total_bytes: Option<u64>,
}

/// A clock, and what its file counts in.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) attribute: Attribute,
    pub(crate) per_mhz: u64,
}

/// amdgpu's table.
#[derive(Debug)]
pub(crate) struct Table {
    attribute: Attribute,
    buffer: Vec<u8>,
}

impl Sensors {
    /// Looks for a card's files; the card is awake.
    pub(crate) fn find(card: &Card, files: &dyn Files) -> Self {
        match card.found.driver {
            Driver::Amdgpu => amdgpu::find(card, files),
            Driver::I915 => intel::find_i915(card, files),
            Driver::Xe => intel::find_xe(card, files),
        }
    }

    pub(crate) fn busy_pct(&mut self, files: &dyn Files, now_ns: u64) -> Option<u32> {
        percent(self.busy.as_mut()?.unsigned(files, now_ns)?)
    }

    pub(crate) fn memory_busy_pct(&mut self, files: &dyn Files, now_ns: u64) -> Option<u32> {
        percent(self.memory_busy.as_mut()?.unsigned(files, now_ns)?)
    }

    /// The first part is the card's own: without it there is no figure. A further one that fails is left out.
    pub(crate) fn memory(&mut self, files: &dyn Files, now_ns: u64) -> Option<Memory> {
        let (own, others) = self.memory.split_first_mut()?;
        let (mut total_bytes, mut used_bytes) = own.read(files, now_ns)?;
        for (total, used) in others.iter_mut().filter_map(|part| part.read(files, now_ns)) {
            total_bytes = total_bytes.saturating_add(total);
            used_bytes = used_bytes.saturating_add(used);
        }
        (total_bytes > 0).then_some(Memory { total_bytes, used_bytes: used_bytes.min(total_bytes), reserved_bytes: 0 })
    }

    /// Temperature, power and fan.
    pub(crate) fn hwmon(&mut self, files: &dyn Files, now_ns: u64, metrics: &mut Metrics) {
        /// No GPU works beyond; below 0 °C there is no figure to publish.
        const PLAUSIBLE_MILLIDEGREES: std::ops::Range<i64> = 0..250_000;
        let millidegrees = self.temperature.iter_mut().find_map(|attribute| attribute.number(files, now_ns));
        metrics.temp_c = millidegrees.filter(|value| PLAUSIBLE_MILLIDEGREES.contains(value)).map(|value| (value / 1_000) as u32);
        metrics.power_mw = self.power.as_mut().and_then(|power| power.read_mw(files, now_ns));
        let pwm = self.fan.as_mut().and_then(|fan| fan.unsigned(files, now_ns));
        metrics.fan_speed_pct = pwm.filter(|pwm| *pwm <= 255).map(|pwm| ((pwm * 100 + 127) / 255) as u32);
    }

    pub(crate) fn clocks(&mut self, files: &dyn Files, now_ns: u64, metrics: &mut Metrics) {
        let read = |clock: &mut Option<Clock>| clock.as_mut().and_then(|clock| clock.mhz(files, now_ns));
        metrics.sm_clock_mhz = read(&mut self.core_clock);
        metrics.mem_clock_mhz = read(&mut self.memory_clock);
    }

    /// amdgpu's table, where it can be read.
    pub(crate) fn table(&mut self, files: &dyn Files, now_ns: u64) -> Option<GpuMetrics> {
        self.table.as_mut()?.read(files, now_ns)
    }

    pub(crate) fn throttle_reasons(&mut self, files: &dyn Files, now_ns: u64) -> Option<u64> {
        self.throttle.as_mut()?.reasons(files, now_ns)
    }

    /// Corrected and uncorrected errors.
    pub(crate) fn ecc_totals(&mut self, files: &dyn Files, now_ns: u64) -> Option<(u64, u64)> {
        let mut buffer = [0; 64];
        amdgpu::parse_ras(self.ecc.as_mut()?.read(files, now_ns, &mut buffer).ok()?)
    }

    /// Whether a sensor that once answered is not there any more: its driver may have registered it anew under another number.
    pub(crate) fn have_moved(&self) -> bool {
        let power = match &self.power {
            Some(Power::Direct(attributes)) => attributes.as_slice(),
            _ => &[],
        };
        self.temperature.iter().chain(power).any(Attribute::has_vanished)
    }

    /// The card has slept.
    pub(crate) fn forget_past(&mut self) {
        if let Some(power) = &mut self.power {
            power.forget();
        }
    }
}

impl MemoryPart {
    pub(crate) const fn new(total: Attribute, used: Attribute) -> Self {
        Self { total, used, known_total_bytes: None }
    }

    fn read(&mut self, files: &dyn Files, now_ns: u64) -> Option<(u64, u64)> {
        if self.known_total_bytes.is_none() {
            self.known_total_bytes = self.total.unsigned(files, now_ns);
        }
        Some((self.known_total_bytes?, self.used.unsigned(files, now_ns)?))
    }
}

impl Clock {
    fn mhz(&mut self, files: &dyn Files, now_ns: u64) -> Option<u32> {
        /// In MHz; what is beyond is a file that counts in something else.
        const FASTEST: u64 = 100_000;
        let mhz = self.attribute.unsigned(files, now_ns)? / self.per_mhz;
        (mhz <= FASTEST).then_some(mhz as u32)
    }
}

impl Table {
    pub(crate) fn new(attribute: Attribute) -> Self {
        Self { attribute, buffer: vec![0; TABLE_BYTES] }
    }

    fn read(&mut self, files: &dyn Files, now_ns: u64) -> Option<GpuMetrics> {
        self.attribute.read(files, now_ns, &mut self.buffer).ok().map(GpuMetrics::parse)
    }
}

fn percent(value: u64) -> Option<u32> {
    (value <= 100).then_some(value as u32)
}
