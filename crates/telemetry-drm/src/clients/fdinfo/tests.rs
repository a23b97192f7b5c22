use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const AMDGPU: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t437\n\
    drm-driver:\tamdgpu\ndrm-client-id:\t7518\ndrm-pdev:\t0000:65:00.0\npasid:\t32786\n\
    drm-resident-vram:\t310488 KiB\ndrm-memory-vram:\t310488 KiB\ndrm-memory-gtt: \t34880 KiB\n\
    drm-engine-gfx:\t10781351614 ns\ndrm-engine-compute:\t99508474 ns\n";
const XE: &str = "drm-driver:\txe\ndrm-client-id:\t5\ndrm-pdev:\t0000:03:00.0\n\
    drm-total-system:\t0\ndrm-shared-vram0:\t16 MiB\ndrm-resident-vram0:\t23992 KiB\n\
    drm-cycles-rcs:\t28257900\ndrm-total-cycles-rcs:\t7655183225\ndrm-engine-capacity-ccs:\t4\n";
const XE_WITHOUT_SPACES: &str = "drm-cycles-rcs:29821070\ndrm-total-cycles-rcs:5044293186233\n";
const I915: &str = "drm-driver:\ti915\ndrm-pdev:\t0000:00:02.0\ndrm-client-id:\t7\n\
    drm-engine-render:\t9288864723 ns\ndrm-engine-copy:\t2035071108 ns\ndrm-engine-video:\t0 ns\ndrm-engine-capacity-video:\t2\n\
    drm-engine-video-enhance:\t0 ns\n";
const OLD_AMDGPU: &str = "pdev:\t0000:65:00.0\npasid:\t32771\nvram mem:\t310488 kB\ngtt mem:\t34880 kB\ncpu mem:\t17 kB\n\
    gfx0:\t12.34%\ncompute0:\t3.5%\ncompute1:\t4.99%\nenc_10:\t7.0%\n";

fn engine(text: &str, engine: Engine) -> EngineCounters {
    Fdinfo::parse(text.as_bytes()).engines[engine as usize]
}

fn memory(text: &str) -> ClientMemory {
    Fdinfo::parse(text.as_bytes()).memory
}

#[test]
fn amdgpu_tells_time_and_memory() {
    let info = Fdinfo::parse(AMDGPU.as_bytes());
    assert_eq!(info.client_id, Some(7518));
    assert_eq!(info.pdev, PciAddress::parse(b"0000:65:00.0"));
    assert_eq!(info.memory, ClientMemory { local: Some(310_488 * KIB), gtt: Some(34_880 * KIB), system: None });
    assert_eq!(engine(AMDGPU, Engine::Render), EngineCounters { busy_ns: Some(10_781_351_614), ..EngineCounters::default() });
    assert_eq!(engine(AMDGPU, Engine::Compute).busy_ns, Some(99_508_474));
    assert_eq!(engine(AMDGPU, Engine::Decode), EngineCounters::default());
}

#[test]
fn xe_tells_cycles_and_how_many_engines_there_are() {
    let info = Fdinfo::parse(XE.as_bytes());
    assert_eq!(info.client_id, Some(5));
    assert_eq!(info.memory, ClientMemory { local: Some(23_992 * KIB), gtt: None, system: Some(0) });
    let rcs = engine(XE, Engine::Render);
    assert_eq!((rcs.cycles, rcs.total_cycles, rcs.busy_ns), (Some(28_257_900), Some(7_655_183_225), None));
    assert_eq!(engine(XE, Engine::Compute), EngineCounters { capacity: Some(4), ..EngineCounters::default() });
    let rcs = engine(XE_WITHOUT_SPACES, Engine::Render);
    assert_eq!((rcs.cycles, rcs.total_cycles), (Some(29_821_070), Some(5_044_293_186_233)));
}

#[test]
fn a_capacity_of_i915_is_no_engine() {
    assert_eq!(engine(I915, Engine::Render).busy_ns, Some(9_288_864_723));
    assert_eq!(engine(I915, Engine::Video), EngineCounters { busy_ns: Some(0), capacity: Some(2), ..EngineCounters::default() });
    assert_eq!(engine(I915, Engine::VideoEnhance).busy_ns, Some(0));
    assert_eq!(memory(I915), ClientMemory::default());
}

#[test]
fn amdgpu_before_5_19_tells_shares_under_other_keys() {
    let info = Fdinfo::parse(OLD_AMDGPU.as_bytes());
    assert_eq!(info.client_id, Some(32_771));
    assert_eq!(info.pdev, PciAddress::parse(b"0000:65:00.0"));
    assert_eq!(info.memory, ClientMemory { local: Some(310_488 * KIB), gtt: Some(34_880 * KIB), system: None });
    assert_eq!(engine(OLD_AMDGPU, Engine::Render).busy_pct, Some(12));
    assert_eq!(engine(OLD_AMDGPU, Engine::Compute).busy_pct, Some(7));
    assert_eq!(engine(OLD_AMDGPU, Engine::EncodeSecond).busy_pct, Some(7));
    assert_eq!(engine(OLD_AMDGPU, Engine::Encode).busy_pct, None);
}

#[test]
fn a_client_id_stands_before_an_address_space_wherever_it_is_told() {
    for text in ["pasid:\t9\ndrm-client-id:\t7\n", "drm-client-id:\t7\npasid:\t9\n"] {
        assert_eq!(Fdinfo::parse(text.as_bytes()).client_id, Some(7), "{text}");
    }
}

#[test]
fn a_text_is_known_by_its_first_lines() {
    for text in [AMDGPU, XE, XE_WITHOUT_SPACES, I915, OLD_AMDGPU, "", "drm-pdev:\t0000:65:00.0\n", "pasid:\t9\ndrm-client-id:\t7\n"] {
        let info = Fdinfo::parse(text.as_bytes());
        assert_eq!(Fdinfo::identity(text.as_bytes()), info.client_id.map(|client_id| (info.pdev, client_id)), "{text}");
    }
}

#[test]
fn spaces_are_optional_and_units_are_minded() {
    for (value, bytes) in [
        ("drm-resident-vram:5", Some(5)),
        ("drm-resident-vram: 5", Some(5)),
        ("drm-resident-vram:\t5 KiB  ", Some(5 * KIB)),
        ("drm-resident-vram:\t  5KiB\t", Some(5 * KIB)),
        ("drm-resident-vram:\t5 MiB\r", Some(5 * MIB)),
        ("drm-resident-vram:\t5 parsec", None),
        ("drm-resident-vram:\t-5 KiB", None),
        ("drm-resident-vram:\t5.5 KiB", None),
        ("drm-resident-vram:\t", None),
    ] {
        assert_eq!(memory(value).local, bytes, "{value:?}");
    }
    assert_eq!(engine("drm-engine-gfx:7ns  ", Engine::Render).busy_ns, Some(7));
    assert_eq!(engine("drm-engine-gfx:7 %", Engine::Render).busy_ns, None);
}

#[test]
fn kinds_of_memory_are_never_added_together_and_regions_are() {
    let all = "drm-total-vram0: 900\ndrm-memory-vram0: 800\ndrm-resident-vram0: 700\ndrm-shared-vram0: 600\ndrm-purgeable-vram0: 500\n";
    assert_eq!(memory(all).local, Some(700));
    assert_eq!(memory("drm-total-vram0: 900\ndrm-memory-vram0: 800\n").local, Some(800));
    assert_eq!(memory("drm-total-vram0: 900\n").local, Some(900));
    assert_eq!(memory("drm-resident-vram0: 0\ndrm-total-vram0: 900\n").local, Some(0));
    assert_eq!(memory("drm-resident-vram0: 7\ndrm-total-vram1: 9\ndrm-resident-local0: 1\n").local, Some(17));
    assert_eq!(memory("drm-resident-stolen-local0: 7\ndrm-memory-cpu: 9\ndrm-resident-doorbell: 1\n"), ClientMemory::default());
}

#[test]
fn figures_beyond_all_bounds_are_absent() {
    assert_eq!(memory("drm-resident-vram: 18446744073709551616\n").local, None);
    assert_eq!(memory("drm-resident-vram: 18446744073709551615 KiB\n").local, None);
    assert_eq!(memory("drm-resident-vram0: 18446744073709551615\ndrm-resident-vram1: 1\n").local, None);
    assert_eq!(engine("drm-engine-gfx: 99999999999999999999 ns\n", Engine::Render).busy_ns, None);
    assert_eq!(engine("gfx0: 655.35%\n", Engine::Render).busy_pct, Some(100));
    for capacity in ["0", "4294967296", "-1"] {
        assert_eq!(engine(&format!("drm-engine-capacity-ccs: {capacity}"), Engine::Compute).capacity, None);
    }
}

/// What a text is made of: a line, and what it adds.
#[derive(Clone, Debug)]
enum Line {
    Busy(&'static str, Engine, u64),
    Cycles(&'static str, Engine, u64, u64),
    Capacity(&'static str, Engine, u32),
    Resident(&'static str, u64, &'static str),
}

const ENGINES: [(&str, Engine); 16] = [
    ("gfx", Engine::Render),
    ("render", Engine::Render),
    ("rcs", Engine::Render),
    ("compute", Engine::Compute),
    ("ccs", Engine::Compute),
    ("dma", Engine::Copy),
    ("copy", Engine::Copy),
    ("bcs", Engine::Copy),
    ("dec", Engine::Decode),
    ("enc", Engine::Encode),
    ("enc_1", Engine::EncodeSecond),
    ("jpeg", Engine::Jpeg),
    ("video", Engine::Video),
    ("video-enhance", Engine::VideoEnhance),
    ("vecs", Engine::VideoEnhance),
    ("vpe", Engine::VideoProcess),
];

fn line() -> impl Strategy<Value = Line> {
    let engine = || select(&ENGINES[..]);
    prop_oneof![
        (engine(), any::<u64>()).prop_map(|((name, engine), ns)| Line::Busy(name, engine, ns)),
        (engine(), any::<u64>(), any::<u64>()).prop_map(|((name, engine), cycles, total)| Line::Cycles(name, engine, cycles, total)),
        (engine(), 1..=u32::MAX).prop_map(|((name, engine), count)| Line::Capacity(name, engine, count)),
        (select(&["vram", "vram0", "local0", "gtt", "system", "system0"][..]), 0..1_u64 << 40, select(&["", " KiB", " MiB", "MiB"][..]))
            .prop_map(|(region, number, unit)| Line::Resident(region, number, unit)),
    ]
}

/// The text of good lines, and what it says.
fn text_of(lines: &[Line], space: &str, end: &str) -> (String, Fdinfo) {
    let mut info = Fdinfo { pdev: PciAddress::parse(b"0000:03:00.0"), client_id: Some(42), ..Fdinfo::default() };
    let mut text =
        format!("pos:{space}0{end}\ndrm-driver:{space}xe{end}\ndrm-pdev:{space}0000:03:00.0{end}\ndrm-client-id:{space}42{end}\n");
    let mut resident = std::collections::BTreeMap::new();
    for line in lines {
        let engines = &mut info.engines;
        match *line {
            Line::Busy(name, engine, ns) => {
                text += &format!("drm-engine-{name}:{space}{ns} ns{end}\n");
                let engine = &mut engines[engine as usize];
                engine.busy_ns = engine.busy_ns.max(Some(ns));
            }
            Line::Cycles(name, engine, cycles, total) => {
                text += &format!("drm-cycles-{name}:{space}{cycles}{end}\ndrm-total-cycles-{name}:{space}{total}{end}\n");
                let engine = &mut engines[engine as usize];
                engine.cycles = engine.cycles.max(Some(cycles));
                engine.total_cycles = engine.total_cycles.max(Some(total));
            }
            Line::Capacity(name, engine, count) => {
                text += &format!("drm-engine-capacity-{name}:{space}{count}{end}\n");
                engines[engine as usize].capacity = Some(count);
            }
            Line::Resident(region, number, unit) => {
                text += &format!("drm-resident-{region}:{space}{number}{unit}{end}\n");
                let factor = match unit.trim() {
                    "KiB" => KIB,
                    "MiB" => MIB,
                    _ => 1,
                };
                resident.insert(region, number * factor);
            }
        }
    }
    for (region, bytes) in resident {
        let sum = match region {
            "gtt" => &mut info.memory.gtt,
            "system" | "system0" => &mut info.memory.system,
            _ => &mut info.memory.local,
        };
        *sum = Some(sum.unwrap_or(0) + bytes);
    }
    (text, info)
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic_or_an_absurd_figure(text in vec(any::<u8>(), 0..600)) {
        let info = Fdinfo::parse(&text);
        prop_assert!(info.engines.iter().all(|engine| engine.busy_pct <= Some(100) && engine.capacity != Some(0)));
    }

    #[test]
    fn garbled_texts_are_read_without_a_panic_or_an_absurd_figure(
        lines in vec(line(), 0..12), places in vec((any::<prop::sample::Index>(), any::<u8>()), 0..12), cut in any::<prop::sample::Index>()
    ) {
        let mut text = format!("{}{OLD_AMDGPU}", text_of(&lines, "\t", "").0).into_bytes();
        for (place, byte) in places {
            let place = place.index(text.len());
            text[place] = byte;
        }
        text.truncate(cut.index(text.len() + 1));
        let info = Fdinfo::parse(&text);
        prop_assert!(info.engines.iter().all(|engine| engine.busy_pct <= Some(100) && engine.capacity != Some(0)));
    }

    #[test]
    fn good_texts_say_what_was_written(lines in vec(line(), 0..24), space in select(&["", " ", "\t", " \t "][..]), end in select(&["", " ", "\t "][..])) {
        let (text, expected) = text_of(&lines, space, end);
        prop_assert_eq!(Fdinfo::parse(text.as_bytes()), expected);
        prop_assert_eq!(Fdinfo::identity(text.as_bytes()), Some((expected.pdev, 42)));
    }
}
