//! One `/proc/PID/fdinfo/N` text of a DRM client, as the kernel's drm-usage-stats describes it. Nothing is allocated.

use crate::{parse, pci::PciAddress};

/// A kind of engine, whatever the driver calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// 3D and, on older GPUs, compute: amdgpu `gfx`, i915 `render`, xe `rcs`.
    Render,
    /// amdgpu and i915 `compute`, xe `ccs`.
    Compute,
    /// amdgpu `dma`, i915 `copy`, xe `bcs`.
    Copy,
    /// amdgpu `dec`.
    Decode,
    /// amdgpu `enc`.
    Encode,
    /// amdgpu `enc_1`, the second encoder of UVD.
    EncodeSecond,
    /// amdgpu `jpeg`, a decoder.
    Jpeg,
    /// i915 `video`, xe `vcs`: decodes and encodes.
    Video,
    /// i915 `video-enhance`, xe `vecs`.
    VideoEnhance,
    /// amdgpu `vpe`.
    VideoProcess,
}

impl Engine {
    pub(super) const COUNT: usize = 10;

    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"gfx" | b"render" | b"rcs" => Self::Render,
            b"compute" | b"ccs" => Self::Compute,
            b"dma" | b"copy" | b"bcs" => Self::Copy,
            b"dec" => Self::Decode,
            b"enc" => Self::Encode,
            b"enc_1" => Self::EncodeSecond,
            b"jpeg" => Self::Jpeg,
            b"video" | b"vcs" => Self::Video,
            b"video-enhance" | b"vecs" => Self::VideoEnhance,
            b"vpe" => Self::VideoProcess,
            _ => return None,
        })
    }
}

/// What is told of one kind of engine. Counters since the client was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EngineCounters {
    /// Time that its work ran, over all engines of the kind.
    pub(super) busy_ns: Option<u64>,
    /// The same in the GPU's clock, to be seen against `total_cycles`.
    pub(super) cycles: Option<u64>,
    /// The GPU's clock, of one engine.
    pub(super) total_cycles: Option<u64>,
    /// How many engines of the kind there are, if told; never 0.
    pub(super) capacity: Option<u32>,
    /// amdgpu before 5.19 tells a share instead, 0–100.
    pub(super) busy_pct: Option<u32>,
}

/// What is told of every kind.
pub(super) type Engines = [EngineCounters; Engine::COUNT];

/// Memory of a client in bytes by where it lies: what is resident, else the old `memory`, else what is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientMemory {
    /// The GPU's own: `vram*`, `local*`.
    pub(super) local: Option<u64>,
    /// System memory that the GPU has mapped: `gtt`.
    pub(super) gtt: Option<u64>,
    /// Other system memory: `system*`.
    pub(super) system: Option<u64>,
}

/// What a text says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fdinfo {
    pub(super) pdev: Option<PciAddress>,
    /// Unique for the device while the client is open.
    pub(super) client_id: Option<u64>,
    pub(super) engines: Engines,
    pub(super) memory: ClientMemory,
}

impl Fdinfo {
    /// Reads a text of whole lines. What is not understood is passed over; a figure that does not fit its type is absent.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut info = Self::default();
        let mut regions = Regions::default();
        for line in text.split(|&byte| byte == b'\n') {
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let (key, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
            match key.strip_prefix(b"drm-") {
                Some(key) => info.take(key, value, &mut regions),
                None => info.take_old(key, value, &mut regions),
            }
        }
        info.memory = regions.memory();
        info
    }

    /// Which client a text tells of, and on which device. These lines come first: the rest of a client's text is not looked at.
    pub(super) fn identity(text: &[u8]) -> Option<(Option<PciAddress>, u64)> {
        let of_key = |key: &[u8]| {
            text.split(|&byte| byte == b'\n')
                .find_map(|line| Some(line.trim_ascii_start().strip_prefix(key)?.strip_prefix(b":")?.trim_ascii()))
        };
        let client_id = of_key(b"drm-client-id").and_then(bare).or_else(|| of_key(b"pasid").and_then(bare))?;
        let pdev = of_key(b"drm-pdev").and_then(PciAddress::parse).or_else(|| of_key(b"pdev").and_then(PciAddress::parse));
        Some((pdev, client_id))
    }

    fn take<'a>(&mut self, key: &'a [u8], value: &[u8], regions: &mut Regions<'a>) {
        match key {
            b"pdev" => self.pdev = PciAddress::parse(value),
            b"client-id" => self.client_id = bare(value),
            _ => {
                if let Some(name) = key.strip_prefix(b"engine-capacity-") {
                    let capacity = bare(value).and_then(|count| u32::try_from(count).ok()).filter(|&count| count > 0);
                    self.engine(name, |engine| engine.capacity = capacity.or(engine.capacity));
                } else if let Some(name) = key.strip_prefix(b"engine-") {
                    self.engine(name, |engine| engine.busy_ns = engine.busy_ns.max(nanoseconds(value)));
                } else if let Some(name) = key.strip_prefix(b"total-cycles-") {
                    self.engine(name, |engine| engine.total_cycles = engine.total_cycles.max(bare(value)));
                } else if let Some(name) = key.strip_prefix(b"cycles-") {
                    self.engine(name, |engine| engine.cycles = engine.cycles.max(bare(value)));
                } else if let Some(name) = key.strip_prefix(b"resident-") {
                    regions.take(name, |region| region.resident = bytes(value));
                } else if let Some(name) = key.strip_prefix(b"memory-") {
                    regions.take(name, |region| region.memory = bytes(value));
                } else if let Some(name) = key.strip_prefix(b"total-") {
                    regions.take(name, |region| region.total = bytes(value));
                }
            }
        }
    }

    /// amdgpu's keys before 5.19.
    fn take_old<'a>(&mut self, key: &'a [u8], value: &[u8], regions: &mut Regions<'a>) {
        match key {
            b"pdev" => self.pdev = self.pdev.or(PciAddress::parse(value)),
            // Its address space's id, as unique for the device as a client-id, which that driver does not tell.
            b"pasid" => self.client_id = self.client_id.or(bare(value)),
            b"vram mem" => regions.take(b"vram", |region| region.memory = bytes(value)),
            b"gtt mem" => regions.take(b"gtt", |region| region.memory = bytes(value)),
            _ => {
                let Some(share_pct) = percent(value) else { return };
                self.engine(numbered(key), |engine| {
                    engine.busy_pct = Some(engine.busy_pct.unwrap_or(0).saturating_add(share_pct).min(100));
                });
            }
        }
    }

    fn engine(&mut self, name: &[u8], take: impl FnOnce(&mut EngineCounters)) {
        if let Some(engine) = Engine::named(name) {
            take(&mut self.engines[engine as usize]);
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Region<'a> {
    name: &'a [u8],
    resident: Option<u64>,
    memory: Option<u64>,
    total: Option<u64>,
}

/// The regions of one text; the drivers tell of six at most that count.
#[derive(Default)]
struct Regions<'a> {
    regions: [Region<'a>; 8],
    count: usize,
}

impl<'a> Regions<'a> {
    fn take(&mut self, name: &'a [u8], take: impl FnOnce(&mut Region<'a>)) {
        let known = self.regions[..self.count].iter().position(|region| region.name == name);
        let place = match known {
            Some(place) => place,
            None if Place::of(name).is_some() && self.count < self.regions.len() => {
                self.regions[self.count].name = name;
                self.count += 1;
                self.count - 1
            }
            None => return,
        };
        take(&mut self.regions[place]);
    }

    fn memory(&self) -> ClientMemory {
        let mut memory = ClientMemory::default();
        for region in &self.regions[..self.count] {
            let held = region.resident.or(region.memory).or(region.total);
            let sum = match Place::of(region.name) {
                Some(Place::Local) => &mut memory.local,
                Some(Place::Gtt) => &mut memory.gtt,
                Some(Place::System) => &mut memory.system,
                None => continue,
            };
            *sum = added(*sum, held);
        }
        memory
    }
}

enum Place {
    Local,
    Gtt,
    System,
}

impl Place {
    fn of(region: &[u8]) -> Option<Self> {
        if region.starts_with(b"vram") || region.starts_with(b"local") {
            Some(Self::Local)
        } else if region == b"gtt" {
            Some(Self::Gtt)
        } else if region.starts_with(b"system") {
            Some(Self::System)
        } else {
            None
        }
    }
}

/// The sum of what is known; a sum beyond all bounds is not.
pub(super) fn added(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    match (sum, more) {
        (Some(sum), Some(more)) => sum.checked_add(more),
        (known, None) | (None, known) => known,
    }
}

/// The number that a value begins with, and its unit.
fn quantity(value: &[u8]) -> Option<(u64, &[u8])> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = value.split_at(digits);
    Some((parse::number(number)?, unit.trim_ascii_start()))
}

fn bare(value: &[u8]) -> Option<u64> {
    quantity(value).filter(|(_, unit)| unit.is_empty()).map(|(number, _)| number)
}

fn nanoseconds(value: &[u8]) -> Option<u64> {
    quantity(value).filter(|(_, unit)| matches!(*unit, b"ns" | b"")).map(|(number, _)| number)
}

fn bytes(value: &[u8]) -> Option<u64> {
    let (number, unit) = quantity(value)?;
    let shift = match unit {
        b"" | b"B" => 0,
        b"KiB" | b"kB" => 10,
        b"MiB" => 20,
        b"GiB" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// `12.34%`, without the fraction.
fn percent(value: &[u8]) -> Option<u32> {
    let (whole, rest) = quantity(value.strip_suffix(b"%")?)?;
    let is_number = match rest.split_first() {
        None => true,
        Some((b'.', fraction)) => fraction.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    };
    is_number.then(|| u32::try_from(whole).unwrap_or(u32::MAX).min(100))
}

/// The name in `gfx0`, `compute3`, `enc_10`.
fn numbered(key: &[u8]) -> &[u8] {
    if key.starts_with(b"enc_1") && key.len() > 5 {
        return b"enc_1";
    }
    let digits = key.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    &key[..key.len() - digits]
}

#[cfg(test)]
mod tests;
