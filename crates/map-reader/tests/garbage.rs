//! Maps that another program made and filled: whatever is there, the reader says what it is or why it cannot.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::cell::RefCell;
use std::fs;
use std::time::{Duration, Instant};

use gpu_types::GPU_BRIDGE_STATE_VERSION;
use gpu_types::maps::{MAPS, MapDefinition};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapHandle, MapType};
use map_reader::{
    Consistency, Error, Freshness, Map, Metric, Reader, Round, age, boottime_now_ns, default_max_age, sample_age, to_boottime_ns,
    to_realtime_ns,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

#[path = "support/mod.rs"]
mod pins;
use pins::{Maps, PinDir};

#[path = "support/garbage.rs"]
mod garbage;
use garbage::{Form, Garbage, Part, Written};

/// Far longer than any read takes, on a machine that is busy with other things.
const READ_LIMIT: Duration = Duration::from_secs(2);

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn garbage(odd: impl Strategy<Value = bool>) -> impl Strategy<Value = Garbage> {
    let part = || (prop::sample::select(Form::ALL.as_slice()), any::<u64>()).prop_map(|(form, seed)| Part { form, seed });
    let parts = [part(), part(), part(), part(), part()];
    let known_schema = prop::bool::weighted(0.75);
    (parts, 0..6_u8, known_schema, any::<bool>(), any::<bool>(), odd).prop_map(
        |(parts, entries, known_schema, known_version, same_bridge, odd)| Garbage {
            parts,
            entries,
            known_schema,
            known_version,
            same_bridge,
            odd,
        },
    )
}

/// Reads the maps in every way that there is, and compares with what was written.
fn check(reader: &mut Reader, maps: &Maps, garbage: &Garbage) {
    let written = garbage.write(maps);
    let begun = Instant::now();
    check_snapshot(reader, garbage, &written);
    check_state(reader, &written);
    let now = boottime_now_ns().unwrap();
    let stamps =
        written.devices.iter().map(|device| device.timestamp_ns).chain(written.processes.iter().map(|(_, record)| record.timestamp_ns));
    for stamp in stamps {
        let taken = to_boottime_ns(stamp, written.meta.clock_offset_ns);
        assert_eq!(sample_age(stamp, &written.meta, now).is_some(), stamp != 0 && taken.is_some());
        if let Some(taken) = taken {
            assert_eq!(to_realtime_ns(taken, written.meta.clock_offset_ns), Some(stamp));
        }
    }
    assert_eq!(age(&written.meta, now).is_none(), written.meta.last_update_boottime_ns == 0);

    if written.is_of_known_schema() {
        let round = reader.round().unwrap();
        assert_eq!(round.map_or(0, Round::boottime_ns), written.meta.last_update_boottime_ns);
        assert_eq!(reader.wait_for_round(None, Duration::ZERO).unwrap(), round);
        assert_eq!(reader.wait_for_round(round, Duration::ZERO).unwrap(), None);
    } else {
        assert!(matches!(reader.wait_for_round(None, Duration::ZERO), Err(Error::UnknownVersion { map: "gpu_meta", .. })));
    }
    assert!(begun.elapsed() < READ_LIMIT, "{:?}", begun.elapsed());
}

fn check_snapshot(reader: &Reader, garbage: &Garbage, written: &Written) {
    let snapshot = reader.snapshot();
    let used = (0..).zip(&written.devices).filter(|(_, device)| device.timestamp_ns != 0).map(|(index, device)| (index, *device));
    let used: Vec<_> = used.collect();
    assert_eq!(reader.devices().unwrap(), used);
    let is_known = written.is_of_known_schema();
    if is_known {
        assert_eq!(snapshot.meta.unwrap(), written.meta);
        assert_eq!(snapshot.devices.unwrap(), used);
        assert_eq!(snapshot.processes.unwrap(), written.processes);
        assert_eq!(snapshot.process_devices.unwrap(), written.process_devices);
    } else {
        let refused = [snapshot.meta.err(), snapshot.devices.err(), snapshot.processes.err(), snapshot.process_devices.err()];
        let version = written.meta.schema_version;
        assert!(refused.iter().all(|error| matches!(error, Some(Error::UnknownVersion { found, .. }) if *found == version)), "{refused:?}");
    }
    let has_state = written.state.version == GPU_BRIDGE_STATE_VERSION;
    assert_eq!(snapshot.state.is_ok(), has_state);
    let expected = match has_state {
        true if garbage.odd => Consistency::Unsettled,
        true if is_known && written.state.helper_pid == written.meta.helper_pid => Consistency::Verified,
        _ => Consistency::Unverified,
    };
    assert_eq!(snapshot.consistency, expected);
    for (pid, record) in &written.processes {
        assert_eq!(reader.process(*pid).unwrap().as_ref(), Some(record));
    }
}

fn check_state(reader: &Reader, written: &Written) {
    let now = boottime_now_ns().unwrap();
    let state = match reader.state() {
        Ok(state) => state,
        Err(Error::NeverWritten { .. }) => return assert_eq!(written.state.version, 0),
        Err(Error::UnknownVersion { found, .. }) => return assert_eq!(found, written.state.version),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(state.record(), &written.state);
    let said =
        [state.phase().to_string(), state.source().to_string(), state.driver_version().into_owned(), state.bridge_version().into_owned()];
    assert!(said.iter().all(|text| text.len() < 1_000));
    let max_age = default_max_age(state.poll_interval());
    assert!(max_age >= Duration::from_secs(1));
    match Freshness::of(&written.meta, now, max_age) {
        Freshness::UnknownVersion { found } => assert!(!written.is_of_known_schema() && found == written.meta.schema_version),
        Freshness::NeverPublished => assert_eq!(written.meta.last_update_boottime_ns, 0),
        _ => assert!(written.is_of_known_schema() && written.meta.last_update_boottime_ns != 0),
    }
    let devices: Vec<_> = state.devices().collect();
    assert_eq!(devices.len(), written.state.n_devices.min(16) as usize);
    for device in devices {
        let texts = [device.name(), device.uuid(), device.pci_bus_id(), device.phase().to_string().into()];
        assert!(texts.iter().all(|text| !text.contains('\0')));
        let present = device.record().metrics_present;
        assert_eq!(device.reports(Metric::PowerMw), present == 0 || present & 1 << (Metric::PowerMw as u32) != 0);
    }
}

#[test]
fn whatever_the_maps_hold_is_read_as_it_is_or_refused() {
    let (pins, maps) = PinDir::full();
    let reader = RefCell::new(Reader::open(pins.path()));
    let mut runner = TestRunner::new(config(10_000));
    let outcome = runner.run(&garbage(Just(false)), |garbage| {
        check(&mut reader.borrow_mut(), &maps, &garbage);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_counter_that_stays_odd_costs_a_reader_a_moment_and_nothing_else() {
    let (pins, maps) = PinDir::full();
    let mut runner = TestRunner::new(config(60));
    let outcome = runner.run(&garbage(Just(true)), |garbage| {
        check(&mut Reader::open(pins.path()), &maps, &garbage);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// What somebody else may have pinned under a map's name.
fn foreign() -> impl Strategy<Value = (Map, MapType, MapDefinition)> {
    const TYPES: [MapType; 6] =
        [MapType::Hash, MapType::Array, MapType::PercpuHash, MapType::PercpuArray, MapType::LruHash, MapType::LruPercpuHash];
    const NO_PREALLOCATION: u32 = 1;
    const MAPPABLE: u32 = 1 << 10;
    const ZERO_SEED: u32 = 1 << 6;
    let of_contract = |pick: fn(&MapDefinition) -> u32| prop::sample::select(MAPS.iter().map(pick).collect::<Vec<_>>());
    let sizes = (
        prop_oneof![of_contract(|map| map.key_size), 1..40_u32],
        prop_oneof![of_contract(|map| map.value_size), 1..5_000_u32],
        prop_oneof![of_contract(|map| map.max_entries), 1..9_000_u32],
        prop_oneof![4 => of_contract(|map| map.flags), 1 => prop::sample::select(vec![0, NO_PREALLOCATION, MAPPABLE, ZERO_SEED])],
    );
    let own = prop::sample::select(Map::ALL);
    // From the right make, in each attribute another one or not.
    (own, prop::option::of(prop::sample::select(TYPES.to_vec())), sizes, any::<[bool; 4]>()).prop_map(|(map, map_type, sizes, differs)| {
        let right = *map.definition();
        let pick = |differs, other, right| if differs { other } else { right };
        let definition = MapDefinition {
            key_size: pick(differs[0], sizes.0, right.key_size),
            value_size: pick(differs[1], sizes.1, right.value_size),
            max_entries: pick(differs[2], sizes.2, right.max_entries),
            flags: pick(differs[3], sizes.3, right.flags),
            ..right
        };
        (map, map_type.unwrap_or(MapType::from(right.kind.bpf_type())), definition)
    })
}

/// Pins it; `None` when the kernel makes no such map.
fn pin(pins: &PinDir, map_type: MapType, definition: &MapDefinition) -> Option<MapHandle> {
    let MapDefinition { name, key_size, value_size, max_entries, flags, .. } = *definition;
    let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, map_flags: flags, ..Default::default() };
    let mut map = MapHandle::create(map_type, Some(name), key_size, value_size, max_entries, &options).ok()?;
    map.pin(pins.pin(name)).unwrap();
    Some(map)
}

#[test]
fn a_map_of_any_other_make_is_refused_with_what_differs_and_the_others_are_read() {
    let (pins, _maps) = PinDir::full();
    let made = RefCell::new((0, 0));
    let mut runner = TestRunner::new(config(1_500));
    let outcome = runner.run(&foreign(), |(map, map_type, definition)| {
        let (name, right) = (map.name(), map.definition());
        let place = pins.pin("kept");
        fs::rename(pins.pin(name), &place).unwrap();
        let theirs = pin(&pins, map_type, &definition);
        made.borrow_mut().0 += u32::from(theirs.is_some());
        if theirs.is_some() {
            let is_right = definition == *right && u32::from(map_type) == right.kind.bpf_type();
            made.borrow_mut().1 += u32::from(!is_right);
            let reader = Reader::open(pins.path());
            match reader.status(map) {
                Ok(()) => assert!(is_right, "{map_type:?} {definition:?}"),
                Err(Error::Foreign { difference, .. }) => {
                    assert!(!is_right && difference.expected != difference.found, "{difference:?}");
                }
                Err(other) => panic!("{other}"),
            }
            let snapshot = reader.snapshot();
            let read = [snapshot.meta.is_ok(), snapshot.devices.is_ok(), snapshot.processes.is_ok(), snapshot.process_devices.is_ok()];
            let expected = [Map::Meta, Map::Device, Map::PerPid, Map::PerPidPerDevice].map(|other| other != map || is_right);
            assert_eq!(read, expected);
            fs::remove_file(pins.pin(name)).unwrap();
        }
        fs::rename(&place, pins.pin(name)).unwrap();
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let (made, foreign) = made.into_inner();
    assert!(made > 500 && foreign > 400, "only {made} of the maps could be made, {foreign} of them foreign");
}
