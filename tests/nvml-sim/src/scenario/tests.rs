use std::path::Path;

use super::{Answer, Board, Code, CostMode, Costs, Device, Effect, Fault, Load, MigInstance, Process, Scenario, ScenarioError};

#[track_caller]
fn parse(json: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(json.as_bytes(), Path::new("test"))
}

#[test]
fn every_board_survives_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("scenario.json");
    for board in Board::ALL {
        let mig = MigInstance { gpu_instance: 7, ..MigInstance::default() };
        let device = Device::from(*board).process(Process::compute(12, 1 << 30).busy(Load::new(50, 20))).with_mig(vec![mig]);
        let scenario = Scenario::new().devices(3, device.hangs("nvmlDeviceGetName")).costs(Costs::published(CostMode::OneLock));
        scenario.write(&path).unwrap();
        assert_eq!(Scenario::read(&path).unwrap(), scenario, "{board:?}");
    }
}

#[test]
fn a_handwritten_scenario_needs_only_what_differs() {
    let scenario = parse(
        r#"{"devices": [{"name": [248, 65], "temperature_c": 44, "power_mw": {"error": 999},
            "faults": [{"call": "nvmlDeviceGetTemperature", "effect": {"return": 15}, "after_calls": 2}],
            "processes": [{"pid": 5, "lists": ["compute", "mps"], "activity": {"periodic": {"period_ms": 500, "loads": [{"sm": 9}]}}}]}]}"#,
    )
    .unwrap();
    let device = &scenario.devices[0];
    assert_eq!(device.temperature_c, Answer::Value(44));
    assert_eq!(device.power_mw, Answer::error(Code::UNKNOWN));
    assert_eq!(device.memory, Answer::NOT_SUPPORTED);
    assert_eq!(device.faults[0], Fault::new("nvmlDeviceGetTemperature", Effect::Return(Code::GPU_IS_LOST)).after_calls(2));
    assert_eq!(device.processes[0].used_memory, None);
}

#[test]
fn misspelt_members_are_refused() {
    assert!(matches!(parse(r#"{"devices": [{"temprature_c": 44}]}"#), Err(ScenarioError::Parse { .. })));
}

#[test]
fn calls_that_do_not_exist_are_refused() {
    for scenario in [
        Scenario::new().fails("nvmlDeviceGetTemprature", Code::UNKNOWN),
        Scenario::new().missing("nvmlDeviceGetTemprature"),
        Scenario::new().device(Device::default().costs("nvmlNothing*", 3)),
    ] {
        let refused = scenario.write(Path::new("/nonexistent/scenario.json")).unwrap_err();
        assert!(matches!(refused, ScenarioError::NoSuchCall(_)), "{refused}");
    }
}

#[test]
fn older_memory_call_counts_reserved_as_used() {
    let memory = super::Memory { total: 100, used: 30, reserved: 10 };
    assert_eq!(memory.free(), 60);
}

#[test]
fn the_documented_scenario_is_one() {
    let text = include_str!("../lib.rs");
    let json = text.split("```json").nth(1).unwrap().split("```").next().unwrap().replace("//!", "");
    assert_eq!(parse(&json).unwrap().devices[0].processes[0].pid, 4711);
}
