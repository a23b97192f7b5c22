//! PCIe and NVLink.

use std::time::{Duration, Instant};

use nvml_sim::{
    abi::{NVML_FI_DEV_PCIE_COUNT_RX_BYTES as RX_BYTES, NVML_FI_DEV_PCIE_COUNT_TX_BYTES as TX_BYTES},
    scenario::{Answer as Sim, Board, Code, Counter, Device, Field, FieldValue, Link, NvLinks, Pcie, Scenario},
};
use telemetry::Answer;

use crate::machine::{Gpu, Machine, one};

const COUNTERS: &str = "pcie counters";
const THROUGHPUT: &str = "pcie throughput";
const NVLINK: &str = "nvlink";

fn link(generation: u32, width: u32, bits: u32, tx: u64, rx: u64) -> Device {
    let link = Pcie::link(generation, width).traffic(11, 22);
    let tx_bytes = Counter::fixed(tx).into();
    let rx_bytes = Counter::fixed(rx).into();
    Device::default().pcie(Pcie { tx_bytes, rx_bytes, counter_bits: bits, ..link })
}

fn pcie(gpu: &Gpu) -> (Option<u64>, Option<u64>) {
    (gpu.reading.metrics.pcie_tx_kbps, gpu.reading.metrics.pcie_rx_kbps)
}

/// Changes what the counters stand at and reads them so much later.
fn read_at(machine: &Machine, gpu: &mut Gpu, board: Device, elapsed: Duration) -> Answer {
    machine.play(&Scenario::new().device(board));
    gpu.later(elapsed);
    gpu.ask(COUNTERS)
}

#[test]
fn byte_counters_give_the_rate_over_the_time_that_passed() {
    let (machine, mut gpu) = one(link(5, 16, 64, 1 << 40, 5_000));
    gpu.read(COUNTERS);
    assert_eq!(pcie(&gpu), (None, None), "one reading is no rate");
    read_at(&machine, &mut gpu, link(5, 16, 64, (1 << 40) + 9_000_000_000, 5_000), Duration::from_millis(250));
    assert_eq!(pcie(&gpu), (Some(36_000_000), Some(0)));
    read_at(&machine, &mut gpu, link(5, 16, 64, (1 << 40) + 9_000_000_000, 7_000_000), Duration::from_secs(4));
    assert_eq!(pcie(&gpu), (Some(0), Some(1_749)), "6,995 kB in 4 s");
    assert_eq!(gpu.ask(THROUGHPUT), Answer::Answered);
    assert_eq!(machine.stats().calls("nvmlDeviceGetPcieThroughput"), 0, "the dear call is not made");
}

#[test]
fn a_counter_that_was_reset_gives_no_rate_once() {
    let (machine, mut gpu) = one(link(5, 16, 64, 1 << 40, 1 << 40));
    gpu.read(COUNTERS);
    assert_eq!(read_at(&machine, &mut gpu, link(5, 16, 64, 500, 1 << 40), Duration::from_secs(1)), Answer::Answered);
    assert_eq!(pcie(&gpu), (None, Some(0)));
    read_at(&machine, &mut gpu, link(5, 16, 64, 2_000_500, 1 << 40), Duration::from_secs(1));
    assert_eq!(pcie(&gpu), (Some(2_000), Some(0)));
}

#[test]
fn counters_that_fail_for_a_while_are_not_given_up() {
    let (machine, mut gpu) = one(link(5, 16, 64, 0, 0));
    gpu.read(COUNTERS);
    for _ in 0..5 {
        let failing = link(5, 16, 64, 0, 0).fails("nvmlDeviceGetFieldValues", Code::TIMEOUT);
        assert_eq!(read_at(&machine, &mut gpu, failing, Duration::from_secs(1)), Answer::Answered);
        assert_eq!(pcie(&gpu), (None, None));
    }
    read_at(&machine, &mut gpu, link(5, 16, 64, 12_000_000, 6_000_000), Duration::from_secs(1));
    assert_eq!(pcie(&gpu), (Some(2_000), Some(1_000)));
}

#[test]
fn a_32_bit_counter_is_read_through_its_wrap_where_the_link_is_slow() {
    let start = (1_u64 << 32) - 1_000_000;
    let (machine, mut gpu) = one(link(1, 1, 32, start, 0));
    gpu.read(COUNTERS);
    read_at(&machine, &mut gpu, link(1, 1, 32, start + 50_000_000, 0), Duration::from_millis(500));
    assert_eq!(pcie(&gpu), (Some(100_000), Some(0)));
}

/// Asks for the throughput until both directions have been read.
#[track_caller]
fn await_throughput(gpu: &mut Gpu) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while gpu.reading.metrics.pcie_tx_kbps.is_none() || gpu.reading.metrics.pcie_rx_kbps.is_none() {
        assert!(Instant::now() < deadline, "no throughput in 20 s: {:?}", gpu.reading.metrics);
        gpu.now_is_now();
        gpu.read(THROUGHPUT);
        std::thread::yield_now();
    }
}

#[test]
fn a_32_bit_counter_on_a_fast_link_is_not_used() {
    let (machine, mut gpu) = one(link(5, 16, 32, 0, 0));
    assert_eq!(gpu.ask(COUNTERS), Answer::NotSupported);
    await_throughput(&mut gpu);
    assert_eq!(pcie(&gpu), (Some(11), Some(22)));
    assert_eq!(machine.stats().field(TX_BYTES, 0), (1, 0));
    assert_eq!(machine.stats().field(RX_BYTES, 0), (1, 0));
}

#[test]
fn a_counter_that_outruns_the_link_is_given_up() {
    let (machine, mut gpu) = one(link(1, 1, 64, 0, 0));
    gpu.read(COUNTERS);
    let answers: Vec<_> = (1..=3)
        .map(|n| {
            let answer = read_at(&machine, &mut gpu, link(1, 1, 64, n << 40, n << 40), Duration::from_millis(200));
            assert_eq!(pcie(&gpu), (None, None));
            answer
        })
        .collect();
    assert_eq!(answers, [Answer::Answered, Answer::Answered, Answer::NotSupported]);
    await_throughput(&mut gpu);
    assert_eq!(pcie(&gpu), (Some(11), Some(22)));
}

#[test]
fn counters_of_a_type_that_is_no_count_are_given_up() {
    let negative = || FieldValue::SignedLongLong(-4);
    let (_machine, mut gpu) = one(link(5, 16, 64, 0, 0).field(TX_BYTES, negative()).field(RX_BYTES, negative()));
    assert_eq!([gpu.ask(COUNTERS), gpu.ask(COUNTERS), gpu.ask(COUNTERS)], [Answer::Answered, Answer::Answered, Answer::NotSupported]);
}

#[test]
fn value_types_5_and_6_are_read_as_what_they_are() {
    let count = |value| link(1, 1, 64, 0, 0).field(TX_BYTES, FieldValue::SignedInt(value)).field(RX_BYTES, FieldValue::SignedInt(0));
    let (machine, mut gpu) = one(count(i32::MAX));
    gpu.read(COUNTERS);
    // One count on, the sign changes.
    read_at(&machine, &mut gpu, count(i32::MIN + 999_999), Duration::from_secs(1));
    assert_eq!(pcie(&gpu), (Some(1_000), Some(0)));
    let (_machine, mut gpu) = one(link(1, 1, 64, 0, 0).field(TX_BYTES, FieldValue::UnsignedShort(7)));
    assert_eq!(gpu.ask(COUNTERS), Answer::NotSupported, "16 bits wrap at once");
}

#[test]
fn drivers_without_counters_are_asked_for_the_throughput_one_direction_at_a_time() {
    for code in [Code::NOT_SUPPORTED, Code::INVALID_ARGUMENT] {
        let board = Device::from(Board::T4).at_work();
        let pcie_of = Pcie { tx_bytes: Sim::error(code), rx_bytes: Sim::error(code), ..board.pcie.clone() };
        let (machine, mut gpu) = one(board.pcie(pcie_of));
        gpu.now_is_now();
        assert_eq!(gpu.ask(COUNTERS), Answer::NotSupported, "{code:?}");
        await_throughput(&mut gpu);
        assert_eq!(pcie(&gpu), (Some(4_500_000), Some(2_500_000)));
        assert_eq!(machine.stats().calls("nvmlDeviceGetPcieThroughput"), 2);
        assert_eq!(machine.stats().field(TX_BYTES, 0).0, 1, "the counters are asked for once");
    }
}

#[test]
fn the_throughput_is_asked_for_as_often_as_its_cost_allows() {
    let (machine, mut gpu) = one(Device::t4().at_work().costs("nvmlDeviceGetPcieThroughput", 21_000));
    gpu.ask(COUNTERS);
    gpu.now_is_now();
    let start_ns = gpu.now.boottime_ns;
    await_throughput(&mut gpu);
    let since_start = Duration::from_nanos(gpu.now.boottime_ns - start_ns);
    let period = gpu.period(THROUGHPUT);
    assert!(period + since_start >= Duration::from_millis(5_250), "{period:?} after {since_start:?}");
    gpu.read_after(period - Duration::from_millis(1), THROUGHPUT);
    assert_eq!(machine.stats().calls("nvmlDeviceGetPcieThroughput"), 2, "one for each direction");
    assert_eq!(gpu.period(THROUGHPUT), Duration::from_millis(1));
    gpu.read_after(Duration::from_millis(1), THROUGHPUT);
    assert_eq!(gpu.period(THROUGHPUT), Duration::ZERO, "under way, and looked for at every opportunity");
}

#[test]
fn a_throughput_call_that_hangs_holds_up_nothing_else() {
    let board = Device::t4().at_work();
    let (machine, mut gpu) = one(board.clone().hangs("nvmlDeviceGetPcieThroughput"));
    gpu.ask(COUNTERS);
    gpu.read(THROUGHPUT);
    gpu.reading.metrics.pcie_rx_kbps = Some(5);
    for _ in 0..10 {
        gpu.later(Duration::from_secs(1));
        gpu.read(THROUGHPUT);
        assert_eq!(gpu.read("sensors").metrics.temp_c, Some(66));
    }
    assert_eq!(pcie(&gpu), (None, None), "what was said before the call got stuck is no longer true");
    machine.play(&Scenario::new().device(board));
    await_throughput(&mut gpu);
    assert_eq!(pcie(&gpu), (Some(4_500_000), Some(2_500_000)));
}

#[test]
fn without_counters_and_throughput_there_is_no_pcie() {
    let (machine, mut gpu) = one(Device::default());
    assert_eq!(gpu.ask(COUNTERS), Answer::NotSupported);
    let deadline = Instant::now() + Duration::from_secs(20);
    while gpu.ask(THROUGHPUT) == Answer::Answered {
        assert!(Instant::now() < deadline, "no end of asking in 20 s");
        gpu.now_is_now();
    }
    assert_eq!(machine.stats().calls("nvmlDeviceGetPcieThroughput"), 2);
    assert_eq!(pcie(&gpu), (None, None));
}

fn nvlink(gpu: &Gpu) -> (Option<u64>, Option<u64>) {
    (gpu.reading.metrics.nvlink_tx_kbps, gpu.reading.metrics.nvlink_rx_kbps)
}

/// Two links that have carried so many bytes, each way the same.
fn links(one: u64, other: u64, form: impl Fn(NvLinks) -> NvLinks) -> Device {
    let link = |bytes| Link { active: true, tx: Counter::fixed(bytes), rx: Counter::fixed(bytes / 2) };
    let links = form(NvLinks { links: vec![link(one), link(other)], ..NvLinks::default() });
    Device::default().nvlinks(links)
}

#[track_caller]
fn check_links(form: impl Fn(NvLinks) -> NvLinks) {
    let start = 1_u64 << 45;
    let (machine, mut gpu) = one(links(start, start, &form));
    gpu.read(NVLINK);
    gpu.read_after(Duration::from_secs(1), NVLINK);
    assert_eq!(nvlink(&gpu), (Some(0), Some(0)));
    // 1,000 MiB and 3,000 MiB more.
    machine.play(&Scenario::new().device(links(start + (1_000 << 20), start + (3_000 << 20), &form)));
    gpu.read_after(Duration::from_millis(500), NVLINK);
    assert_eq!(nvlink(&gpu), (Some(8_388_608), Some(4_194_304)));
    let before = machine.stats();
    gpu.read_after(Duration::from_millis(500), NVLINK);
    assert_eq!(machine.stats().since(&before).calls("nvmlDeviceGetFieldValues"), 1);
    // Reset to nearly nothing.
    machine.play(&Scenario::new().device(links(4_096, 4_096, &form)));
    gpu.read_after(Duration::from_secs(1), NVLINK);
    assert_eq!(nvlink(&gpu), (None, None));
    machine.play(&Scenario::new().device(links(4_096 + (1 << 30), 4_096 + (1 << 30), &form)));
    gpu.read_after(Duration::from_secs(1), NVLINK);
    assert_eq!(nvlink(&gpu), (Some(2_147_484), Some(1_073_742)));
}

#[test]
fn all_links_are_counted_together() {
    check_links(|links| links);
}

#[test]
fn each_link_is_counted_where_they_are_not_counted_together() {
    check_links(|links| NvLinks { all_links: false, ..links });
}

#[test]
fn nvlink_5_is_counted_in_bytes() {
    check_links(|links| NvLinks { all_links: false, kib_counters: false, byte_counters: true, ..links });
}

#[test]
fn a_link_that_comes_up_later_is_counted_within_a_minute() {
    let board = |bytes: u64, is_up: bool| {
        let board = links(bytes, bytes, |links| NvLinks { all_links: false, ..links });
        let down = |id| Field { id, scope: Some(1), answer: Sim::error(Code::NOT_SUPPORTED) };
        if is_up { board } else { Device { fields: vec![down(138), down(139)], ..board } }
    };
    let (machine, mut gpu) = one(board(0, false));
    gpu.read(NVLINK);
    let read = |gpu: &mut Gpu, board, elapsed| {
        machine.play(&Scenario::new().device(board));
        gpu.read_after(elapsed, NVLINK);
        nvlink(gpu)
    };
    assert_eq!(read(&mut gpu, board(1 << 30, false), Duration::from_secs(1)), (Some(1_073_742), Some(536_871)), "of one link");
    let before = machine.stats();
    assert_eq!(read(&mut gpu, board(1 << 30, true), Duration::from_secs(1)), (Some(0), Some(0)));
    assert_eq!(machine.stats().since(&before).field(138, 0).0, 1, "the other is not asked for");
    read(&mut gpu, board(1 << 30, true), Duration::from_secs(60));
    assert_eq!(read(&mut gpu, board(2 << 30, true), Duration::from_secs(1)), (Some(2_147_484), Some(1_073_742)), "of both");
}

#[test]
fn a_board_without_nvlink_is_asked_once() {
    let (machine, mut gpu) = one(Board::T4);
    assert_eq!(gpu.ask(NVLINK), Answer::NotSupported);
    let asked = machine.stats().calls("nvmlDeviceGetFieldValues");
    assert_eq!(gpu.ask(NVLINK), Answer::NotSupported);
    assert_eq!(machine.stats().calls("nvmlDeviceGetFieldValues"), asked);
    assert_eq!(nvlink(&gpu), (None, None));
}

#[test]
fn more_than_any_nvlink_carries_is_refused() {
    let (machine, mut gpu) = one(links(0, 0, |links| links));
    gpu.read(NVLINK);
    machine.play(&Scenario::new().device(links(1 << 60, 0, |links| links)));
    gpu.read_after(Duration::from_secs(1), NVLINK);
    assert_eq!(nvlink(&gpu), (None, None));
}
