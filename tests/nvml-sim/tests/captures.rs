//! Profiles against what `nvidia-smi -q -x` printed on real boards. The captures are not part of this project: who has some names their
//! directory in `NVML_CAPTURES`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::{env, fs, io::Write as _, path::Path};

use nvml_sim::{
    abi,
    scenario::{Answer, Board, Device, Pci},
};

const VARIABLE: &str = "NVML_CAPTURES";
const BOARDS: [Board; 7] = [Board::A100, Board::H100, Board::B200, Board::Gb200, Board::Gb300, Board::L40s, Board::T4];

#[test]
fn profiles_say_what_their_boards_say() {
    let Some(directory) = env::var_os(VARIABLE) else {
        return say(&format!("not given, no profile was compared with a real board (name their directory in {VARIABLE})"));
    };
    let mut compared = Vec::new();
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "xml")) {
        compared.extend(compare_file(file));
    }
    assert!(!compared.is_empty(), "no capture of a known board in {}", Path::new(&directory).display());
    say(&format!("compared with real boards: {compared:?}"));
}

/// Past the test runner, which would keep it to itself.
fn say(words: &str) {
    std::io::stderr().write_all(format!("\ncaptures: {words}\n").as_bytes()).unwrap();
}

fn compare_file(file: &Path) -> Option<Board> {
    let text = fs::read_to_string(file).unwrap();
    let name = value(&text, "product_name");
    let board = BOARDS.into_iter().find(|board| Device::from(*board).name.as_bytes() == name.as_bytes())?;
    assert_eq!(board.driver_version(), value(&text, "driver_version"), "{board:?}: driver");
    for (number, gpu) in text.split("<gpu id=").skip(1).enumerate() {
        compare(board, number, gpu);
    }
    Some(board)
}

/// All GPUs of a machine agree in what does not change; the first one is the one that the profile was written from.
fn compare(board: Board, number: usize, gpu: &str) {
    let device = Device::from(board);
    let check = |what: &str, profile: Option<u64>, capture: Option<u64>| {
        assert_eq!(profile, capture, "{board:?}, GPU {number} of the capture: {what}");
    };
    let within = |section: &str, tag: &str| number_in(value(part(gpu, section), tag));
    let Some(Pci { device_id, subsystem_id, .. }) = device.pci else { panic!("{board:?} has no PCI ids") };
    check("PCI device", Some(device_id.into()), Some(u64::from_str_radix(value(gpu, "pci_device_id"), 16).unwrap()));
    check("PCI subsystem", Some(subsystem_id.into()), Some(u64::from_str_radix(value(gpu, "pci_sub_system_id"), 16).unwrap()));
    let memory = device.memory.get().ok();
    check("memory", memory.map(|memory| memory.total >> 20), within("fb_memory_usage", "total"));
    check("reserved memory", memory.map(|memory| memory.reserved >> 20), within("fb_memory_usage", "reserved"));
    check("used memory", memory.map(|memory| memory.used >> 20), within("fb_memory_usage", "used"));
    check("greatest SM clock", figure(&device.max_clocks.sm), within("max_clocks", "sm_clock"));
    check("greatest memory clock", figure(&device.max_clocks.mem), within("max_clocks", "mem_clock"));
    check("greatest video clock", figure(&device.max_clocks.video), within("max_clocks", "video_clock"));
    check("PCIe generation", figure(&device.pcie.generation), within("pcie_gen", "current_link_gen"));
    check("PCIe lanes", figure(&device.pcie.width), within("link_widths", "current_link_width"));
    check("greatest PCIe generation", figure(&device.pcie.max_generation), within("pcie_gen", "max_link_gen"));
    check("most PCIe lanes", figure(&device.pcie.max_width), within("link_widths", "max_link_width"));
    check("fan", device.fans.first().map(|fan| u64::from(*fan)), number_in(value(gpu, "fan_speed")));
    let ecc = device.ecc.get().is_ok_and(|ecc| ecc.enabled);
    check("ECC", Some(ecc.into()), Some((value(part(gpu, "ecc_mode"), "current_ecc") == "Enabled").into()));
    let has_mig = value(part(gpu, "mig_mode"), "current_mig") != "N/A";
    check("MIG", Some(device.mig.get().is_ok().into()), Some(has_mig.into()));
    check("compute mode", figure(&device.compute_mode), (value(gpu, "compute_mode") == "Default").then_some(0));
    let utilization = device.utilization.get().ok();
    check("GPU utilization", utilization.map(|rates| rates.gpu.into()), within("utilization", "gpu_util"));
    check("memory utilization", utilization.map(|rates| rates.memory.into()), within("utilization", "memory_util"));
    check("encoder", figure(&device.encoder), within("utilization", "encoder_util"));
    check("decoder", figure(&device.decoder), within("utilization", "decoder_util"));
    let idle = value(gpu, "clocks_event_reason_gpu_idle") == "Active";
    check("event reasons", device.event_reasons.get().ok().copied(), idle.then_some(abi::nvmlClocksEventReasonGpuIdle.into()));
    let average = value(part(gpu, "gpu_power_readings"), "average_power_draw");
    check("whether average power is told", Some(device.average_power_mw.get().is_ok().into()), Some((average != "N/A").into()));
    if number == 0 {
        check(
            "temperature",
            device.temperature_c.get().ok().map(|celsius| u64::try_from(*celsius).unwrap()),
            within("temperature", "gpu_temp"),
        );
        check("power", figure(&device.power_mw), milliwatts(value(part(gpu, "gpu_power_readings"), "instant_power_draw")));
        check("average power", figure(&device.average_power_mw), milliwatts(average));
        check("SM clock", figure(&device.clocks.sm), within("clocks", "sm_clock"));
        check("memory clock", figure(&device.clocks.mem), within("clocks", "mem_clock"));
        check("video clock", figure(&device.clocks.video), within("clocks", "video_clock"));
        check("PCIe TX", figure(&device.pcie.tx_kbps), number_in(value(gpu, "tx_util")));
        check("PCIe RX", figure(&device.pcie.rx_kbps), number_in(value(gpu, "rx_util")));
    }
}

fn figure(answer: &Answer<u32>) -> Option<u64> {
    answer.get().ok().map(|figure| u64::from(*figure))
}

/// What stands between the first such tag and its end.
fn part<'a>(text: &'a str, tag: &str) -> &'a str {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let inner = text.split_once(&open).and_then(|(_, rest)| rest.split_once(&close));
    inner.unwrap_or_else(|| panic!("the capture has no {open}")).0
}

fn value<'a>(text: &'a str, tag: &str) -> &'a str {
    part(text, tag).trim()
}

/// The number before a unit; none for `N/A`.
fn number_in(value: &str) -> Option<u64> {
    let digits = value.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// From `68.92 W`.
fn milliwatts(value: &str) -> Option<u64> {
    let (watts, hundredths) = value.strip_suffix(" W")?.split_once('.')?;
    Some(watts.parse::<u64>().ok()? * 1_000 + hundredths.parse::<u64>().ok()? * 10)
}

#[test]
fn captures_are_read_as_they_are_written() {
    let gpu = "<clocks>\n<sm_clock>345 MHz</sm_clock></clocks><fan_speed>N/A</fan_speed><w>16x</w>";
    assert_eq!(number_in(value(part(gpu, "clocks"), "sm_clock")), Some(345));
    assert_eq!((number_in(value(gpu, "fan_speed")), number_in(value(gpu, "w"))), (None, Some(16)));
    assert_eq!((milliwatts("68.92 W"), milliwatts("N/A")), (Some(68_920), None));
}
