//! The loop in this process, with the real sampler as its child: for limits that the command line does not offer.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use bridge::sampler::ChildLauncher;
use bridge::{BridgeError, Control, Limits, MapOptions, Plan, Source, Unobserved, WhenUnavailable, clock::SystemClock};
use map_reader::boottime_now_ns;

use crate::{Bpffs, Sim, binary};

/// A bridge on a thread. Stopped at the end.
#[derive(Debug)]
pub struct Embedded {
    control: Control,
    thread: Option<JoinHandle<Result<(), BridgeError>>>,
}

impl Embedded {
    /// Publishes what `sim` says, sampled by the daemon's own sampler process.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(sim: &Sim, pins: &Bpffs, poll_interval: Duration, limits: Limits) -> Self {
        let arguments = [
            "sampler-child".into(),
            "--source=nvml".into(),
            format!("--poll-interval={}ns", poll_interval.as_nanos()),
            format!("--nvml-library-path={}", sim.library().display()),
        ];
        let child = ChildLauncher::new(binary("gpu-ebpf-bridge"), arguments.into_iter().map(Into::into).collect());
        let plan = Plan {
            maps: MapOptions::new(pins.path(), std::process::id(), boottime_now_ns().expect("the clock can be read")),
            keep_pins: false,
            poll_interval,
            version: "0.0.0".to_owned(),
            clock: std::sync::Arc::new(SystemClock),
            sources: vec![Source { name: "nvml", is_mock: false, launcher: Box::new(child) }],
            when_unavailable: WhenUnavailable::Fail,
            observer: Box::new(Unobserved),
        };
        let control = Control::new().expect("a descriptor");
        let asked = control.clone();
        let thread = thread::Builder::new().name("bridge".to_owned());
        let thread = thread.spawn(move || bridge::run_within(plan, &limits, &asked)).expect("a thread can be started");
        Self { control, thread: Some(thread) }
    }

    /// Stops it.
    ///
    /// # Errors
    /// The bridge's own.
    pub fn stop(self) -> Result<(), BridgeError> {
        self.control.stop();
        self.wait()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// The bridge's own.
    ///
    /// # Panics
    /// When the loop panicked.
    pub fn wait(mut self) -> Result<(), BridgeError> {
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("the loop does not panic"))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            // Only when the test has failed already.
            drop(thread.join());
        }
    }
}
