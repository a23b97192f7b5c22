//! What is on the screen, and what keys do with it.

use std::cmp::Ordering;
use std::path::Path;
use std::time::{Duration, Instant};

use bridge_dump::Capture;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use gpu_types::GPU_DEVICE_PRIMARY_MULTI;
use gpu_types::keys::PidDeviceKey;

use super::history::Histories;
use super::processes::Processes;

/// What the processes are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Memory,
    Utilization,
    Pid,
    Command,
    Device,
}

/// A process as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) place: String,
    /// The devices that it uses, as in `0,3`.
    pub(super) devices: String,
    pub(super) memory_bytes: u64,
    /// `None`: no utilization sample yet.
    pub(super) sm_pct: Option<u32>,
    pub(super) mem_pct: Option<u32>,
    pub(super) sample_age: Option<Duration>,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct App {
    pub(super) pin_dir: String,
    pub(super) colours: bool,
    pub(super) capture: Option<Capture>,
    pub(super) histories: Histories,
    /// What is left of the processes by the filter, sorted.
    pub(super) rows: Vec<Row>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) typing: bool,
    pub(super) paused: bool,
    /// The first row that is drawn.
    pub(super) first: usize,
    /// How many rows fit, as of the last drawing.
    pub(super) page: usize,
    pub(super) processes: Processes,
    interval: Duration,
    over: bool,
}

impl App {
    pub(super) fn new(pin_dir: &Path, interval: Duration, colours: bool) -> Self {
        Self {
            pin_dir: pin_dir.display().to_string(),
            colours,
            capture: None,
            histories: Histories::default(),
            rows: Vec::new(),
            sort: Sort::Memory,
            reversed: false,
            filter: String::new(),
            typing: false,
            paused: false,
            first: 0,
            page: 1,
            processes: Processes::new(),
            interval,
            over: false,
        }
    }

    /// The time between two looks at the maps.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Takes in what the maps hold now. While paused the histories go on and the rest stands still.
    pub(super) fn update(&mut self, capture: Capture) {
        self.histories.push(&capture);
        if !self.paused {
            self.capture = Some(capture);
            self.arrange();
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            // Raw mode turns the interrupt into a key.
            self.over |= matches!(key.code, KeyCode::Char('c' | 'd'));
            return;
        }
        if self.typing {
            self.type_filter(key.code);
            return;
        }
        match key.code {
            KeyCode::Char('q') => self.over = true,
            KeyCode::Char('m') => self.sort_by(Sort::Memory),
            KeyCode::Char('u') => self.sort_by(Sort::Utilization),
            KeyCode::Char('p') => self.sort_by(Sort::Pid),
            KeyCode::Char('c') => self.sort_by(Sort::Command),
            KeyCode::Char('g') => self.sort_by(Sort::Device),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.first += 1,
            KeyCode::PageUp => self.first = self.first.saturating_sub(self.page),
            KeyCode::PageDown => self.first += self.page,
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = usize::MAX,
            _ => return,
        }
        self.arrange();
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(character) => self.filter.push(character),
            _ => return,
        }
        self.first = 0;
        self.arrange();
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.reversed = false;
        self.first = 0;
    }

    /// Keeps the first row where there is something to see.
    pub(super) fn fit(&mut self, page: usize) {
        self.page = page.max(1);
        self.first = self.first.min(self.rows.len().saturating_sub(page));
    }

    fn arrange(&mut self) {
        let mut rows = self.capture.as_ref().map_or(Vec::new(), |capture| rows(capture, &mut self.processes));
        let filter = self.filter.to_lowercase();
        rows.retain(|row| {
            let contains = |text: &str| text.to_lowercase().contains(&filter);
            contains(&row.command) || contains(&row.place) || row.pid.to_string().contains(&filter)
        });
        rows.sort_by(|a, b| {
            let order = compare(self.sort, a, b);
            // Equal ones stay in the order of their PIDs.
            if self.reversed { order.reverse() } else { order }.then(a.pid.cmp(&b.pid))
        });
        self.rows = rows;
        self.fit(self.page);
    }
}

/// Figures largest first, texts and numbers that name something smallest first.
fn compare(sort: Sort, a: &Row, b: &Row) -> Ordering {
    match sort {
        Sort::Memory => b.memory_bytes.cmp(&a.memory_bytes),
        Sort::Utilization => b.sm_pct.cmp(&a.sm_pct),
        Sort::Pid => a.pid.cmp(&b.pid),
        Sort::Command => a.command.cmp(&b.command),
        Sort::Device => a.devices.cmp(&b.devices),
    }
}

fn rows(capture: &Capture, processes: &mut Processes) -> Vec<Row> {
    let Ok(records) = &capture.snapshot.processes else { return Vec::new() };
    let pids: Vec<u32> = records.iter().map(|(pid, _)| *pid).collect();
    processes.keep(&pids);
    let now = Instant::now();
    let row = |&(pid, ref record): &(u32, _)| {
        let record: &gpu_types::GpuPidMetricsAggregated = record;
        let sampled = record.timestamp_ns != 0;
        let who = processes.who(pid, now);
        Row {
            pid,
            command: who.command,
            place: who.place,
            devices: devices(capture, pid).unwrap_or_else(|| match record.gpu_device_primary {
                GPU_DEVICE_PRIMARY_MULTI => format!("x{}", record.device_count),
                device => device.to_string(),
            }),
            memory_bytes: record.used_gpu_memory_total,
            sm_pct: sampled.then_some(record.sm_util_pct_max),
            mem_pct: sampled.then_some(record.mem_util_pct_max),
            sample_age: capture.sample_age(record.timestamp_ns),
        }
    };
    records.iter().map(row).collect()
}

/// The devices of a process, where the map by device has it.
fn devices(capture: &Capture, pid: u32) -> Option<String> {
    // Sorted by PID, then by device.
    let entries = capture.snapshot.process_devices.as_ref().ok()?;
    let first = entries.partition_point(|(key, _)| *key < PidDeviceKey::new(pid, 0));
    let own = entries[first..].iter().take_while(|(key, _)| key.pid() == pid);
    let devices: Vec<_> = own.map(|(key, _)| key.device().to_string()).collect();
    (!devices.is_empty()).then(|| devices.join(","))
}
