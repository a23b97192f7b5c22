//! The header's helpers, run by the kernel (`BPF_PROG_TEST_RUN`) on real maps.

use gpu_types::bytes::Record;
use gpu_types::keys::SINGLE;
use gpu_types::{GPU_SCHEMA_VERSION, GpuMeta, GpuPidMetricsAggregated};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use nix::time::{ClockId, clock_gettime};

use test_support::Bpffs;

use crate::support::{compile_text, repository, temporary_directory};

/// Each program takes two numbers, as the packet's bytes, and returns a field of the record that the helper gave, or -1 for NULL.
const PROGRAMS: &str = r#"
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#define GPU_BRIDGE_WANT_ALL
#include <gadget/gpu_bridge_maps.h>

struct arguments { __u64 first, second; };

SEC("tc") int fresh(void *skb)
{
	struct arguments arguments;
	struct gpu_meta *meta;

	if (bpf_skb_load_bytes(skb, 0, &arguments, sizeof(arguments)))
		return -2;
	meta = gpu_meta_fresh(arguments.first, arguments.second);
	return meta ? meta->n_devices : -1;
}

SEC("tc") int fresh_by_the_kernels_clock(void *skb)
{
	struct arguments arguments;
	struct gpu_meta *meta;

	if (bpf_skb_load_bytes(skb, 0, &arguments, sizeof(arguments)))
		return -2;
	meta = gpu_meta_fresh(bpf_ktime_get_boot_ns(), arguments.second);
	return meta ? meta->n_devices : -1;
}

SEC("tc") int holder(void *skb)
{
	struct arguments arguments;
	struct gpu_pid_metrics_aggregated *process;

	if (bpf_skb_load_bytes(skb, 0, &arguments, sizeof(arguments)))
		return -2;
	process = gpu_pid_holder(arguments.first, arguments.second);
	return process ? process->device_count : -1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
"#;

struct Helpers {
    object: Object,
    _pins: Bpffs,
}

impl Helpers {
    fn load() -> Self {
        let pins = Bpffs::mount();
        let directory = temporary_directory();
        let path = compile_text(directory.path(), "helpers", PROGRAMS, &[&repository().join("bpf")]);
        let path = path.unwrap_or_else(|error| panic!("{error}"));
        let object = ObjectBuilder::default().pin_root_path(pins.path()).unwrap().open_file(path).unwrap().load();
        let object =
            object.unwrap_or_else(|error| panic!("cannot load BPF programs (root, or CAP_BPF and CAP_NET_ADMIN, is needed): {error:#}"));
        Self { object, _pins: pins }
    }

    fn write(&self, map: &str, key: &[u8], value: &[u8]) {
        let map = self.object.maps().find(|candidate| candidate.name() == map).unwrap();
        map.update(key, value, MapFlags::ANY).unwrap();
    }

    fn write_meta(&self, last_update_boottime_ns: u64) {
        let meta = GpuMeta { schema_version: GPU_SCHEMA_VERSION, n_devices: 2, last_update_boottime_ns, ..Default::default() };
        self.write("gpu_meta", SINGLE.as_bytes(), meta.as_bytes());
    }

    /// What the program returned; None for its -1.
    fn run(&self, program: &str, first: u64, second: u64) -> Option<u32> {
        let program = self.object.progs_mut().find(|candidate| candidate.name() == program).unwrap();
        let arguments = [first, second];
        let input = ProgramInput { data_in: Some(u64::slice_as_bytes(&arguments)), ..Default::default() };
        let returned = program.test_run(input).unwrap().return_value;
        assert_ne!(returned, -2_i32 as u32, "the program could not read its arguments");
        (returned != -1_i32 as u32).then_some(returned)
    }
}

fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

#[test]
fn meta_is_fresh_up_to_the_threshold_and_not_beyond() {
    let helpers = Helpers::load();
    #[track_caller]
    fn check(helpers: &Helpers, stamp: u64, now: u64, threshold_ms: u64, fresh: bool) {
        helpers.write_meta(stamp);
        let found = helpers.run("fresh", now, threshold_ms);
        assert_eq!(found, fresh.then_some(2), "stamp {stamp}, now {now}, threshold {threshold_ms} ms");
    }
    let check = |stamp, now, threshold_ms, fresh| check(&helpers, stamp, now, threshold_ms, fresh);
    const HOUR: u64 = 3_600_000_000_000;

    check(HOUR, HOUR, 300, true);
    check(HOUR, HOUR + 299_999_999, 300, true);
    check(HOUR, HOUR + 300_000_000, 300, true);
    check(HOUR, HOUR + 300_000_001, 300, false);
    check(HOUR, 2 * HOUR, 300, false);
    check(HOUR, HOUR, 0, true);
    check(HOUR, HOUR + 1, 0, false);

    // Published after the caller read its clock.
    check(HOUR, HOUR - 1, 300, true);
    check(HOUR, HOUR - 300_000_000, 300, true);
    // Another clock than the caller's.
    check(HOUR, HOUR - 300_000_001, 300, false);
    check(u64::MAX, HOUR, 300, false);

    // Thresholds whose nanoseconds do not fit 64 bits.
    check(1, u64::MAX, u64::MAX, true);
    check(1, u64::MAX, u64::MAX / 1_000_000 + 1, true);
    check(1, u64::MAX, u64::MAX / 1_000_000 - 1, false);
}

#[test]
fn meta_that_nobody_wrote_is_not_fresh() {
    let helpers = Helpers::load();
    for now in [0, 1, 100_000_000, u64::MAX] {
        assert_eq!(helpers.run("fresh", now, 300), None, "an empty map at {now}");
    }
    helpers.write_meta(0);
    assert_eq!(helpers.run("fresh", 1, 300), None, "a record without a stamp");
}

#[test]
fn meta_of_another_schema_is_not_fresh() {
    let helpers = Helpers::load();
    for schema_version in [0, 2, u32::MAX] {
        let meta = GpuMeta { schema_version, n_devices: 2, last_update_boottime_ns: 1000, ..Default::default() };
        helpers.write("gpu_meta", SINGLE.as_bytes(), meta.as_bytes());
        assert_eq!(helpers.run("fresh", 1000, 300), None, "schema version {schema_version}");
    }
    helpers.write_meta(1000);
    assert_eq!(helpers.run("fresh", 1000, 300), Some(2));
}

#[test]
fn the_kernels_boot_clock_and_the_stamps_clock_are_one() {
    let helpers = Helpers::load();
    helpers.write_meta(boottime_ns());
    assert_eq!(helpers.run("fresh_by_the_kernels_clock", 0, 60_000), Some(2));
    helpers.write_meta(boottime_ns().saturating_sub(2_000_000_000).max(1));
    assert_eq!(helpers.run("fresh_by_the_kernels_clock", 0, 1_000), None);
}

#[test]
fn a_process_is_a_holder_from_the_threshold_on() {
    let helpers = Helpers::load();
    let process = GpuPidMetricsAggregated { used_gpu_memory_total: 1 << 30, device_count: 3, ..Default::default() };
    helpers.write("gpu_per_pid", 4711_u32.as_bytes(), process.as_bytes());
    let idle = GpuPidMetricsAggregated { device_count: 1, ..Default::default() };
    helpers.write("gpu_per_pid", 4712_u32.as_bytes(), idle.as_bytes());

    assert_eq!(helpers.run("holder", 4711, 0), Some(3));
    assert_eq!(helpers.run("holder", 4711, (1 << 30) - 1), Some(3));
    assert_eq!(helpers.run("holder", 4711, 1 << 30), Some(3));
    assert_eq!(helpers.run("holder", 4711, (1 << 30) + 1), None);
    assert_eq!(helpers.run("holder", 4711, u64::MAX), None);
    assert_eq!(helpers.run("holder", 4712, 0), Some(1), "known, without memory");
    assert_eq!(helpers.run("holder", 4712, 1), None);
    assert_eq!(helpers.run("holder", 4713, 0), None, "unknown");
}
