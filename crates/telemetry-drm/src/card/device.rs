//! The device: asks a card's files what may be asked now.

use std::{mem, path::Path, sync::Arc, time::Duration};

use telemetry::{Answer, Device, DeviceError, Identity, Memory, Now, Probe, Process, Reading, Stamp};

use super::{
    Card, Driver, Roster,
    gate::Access,
    identity::{identify, is_raven},
    local_memory::LocalMemory,
    looker::{self, Looker},
    pcie::PcieBandwidth,
    question::{PROBES, QUESTIONS, Question},
    sensors::Sensors,
    shared_clients::{Borrower, SharedClients},
};
use crate::sysfs::Files;

const SECOND_NS: u64 = 1_000_000_000;
/// A driver registers its sensors soon after its card, and anew after some resets.
const FIND_AGAIN_NS: u64 = 30 * SECOND_NS;
/// How long the activity in amdgpu's table stands in for a busy file that fails.
const ACTIVITY_HOLDS_NS: u64 = 2 * SECOND_NS;
/// The table of a card that says nothing of use in it.
const IDLE_TABLE_PERIOD: Duration = Duration::from_secs(60);

/// What all devices of a source share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) cards: Arc<[Card]>,
    /// Cards have the same places in it. `None` where they are not to be looked at.
    pub(crate) clients: Option<Arc<SharedClients>>,
    pub(crate) looker: Arc<Looker>,
    pub(crate) roster: Arc<Roster>,
}

/// One card, with all that is remembered of it between two questions.
#[derive(Debug)]
pub(crate) struct DrmDevice {
    identity: Identity,
    /// It slept when it was identified, so not everything could be asked.
    is_identity_partial: bool,
    shared: Shared,
    place: usize,
    sensors: Option<Sensors>,
    found_ns: u64,
    local_memory: LocalMemory,
    pcie: PcieBandwidth,
    pcie_wait: Duration,
    /// From when it was last asked until the next look through all of /proc is due.
    clients_wait: Duration,
    /// What amdgpu's table said, and when.
    activity: Option<(u32, u64)>,
    is_table_of_use: bool,
    is_busy_broken: bool,
    /// Since it was last asked who has departed.
    has_read_clients: bool,
    /// When they were last read, unless the card was left alone since.
    clients_read_ns: Option<u64>,
    /// The clients' figure at their last reading.
    client_busy_pct: Option<u32>,
    /// Whether the processes of all users were seen then.
    sees_everybody: bool,
    /// When each question was last put to the card.
    read_ns: [u64; QUESTIONS.len()],
    /// Answered by leaving the card alone: due again as soon as it may be read.
    is_deferred: [bool; QUESTIONS.len()],
    /// When what stands was read, for a card that is left alone.
    touched: Option<Stamp>,
    presence_due_ns: u64,
    borrower: Borrower,
}

impl DrmDevice {
    /// The card at `place` among those that are `shared`.
    pub(crate) fn boxed(shared: &Shared, root: &Path, place: usize, identity: Identity, is_identity_partial: bool) -> Box<dyn Device> {
        let found = &shared.cards[place].found;
        Box::new(Self {
            identity,
            is_identity_partial,
            shared: shared.clone(),
            place,
            sensors: None,
            found_ns: 0,
            local_memory: LocalMemory::new(root, &found.pci),
            pcie: PcieBandwidth::new(&found.device(), found.number),
            pcie_wait: Duration::ZERO,
            clients_wait: Duration::ZERO,
            activity: None,
            is_table_of_use: true,
            is_busy_broken: false,
            has_read_clients: false,
            clients_read_ns: None,
            client_busy_pct: None,
            sees_everybody: false,
            read_ns: [0; QUESTIONS.len()],
            is_deferred: [false; QUESTIONS.len()],
            touched: None,
            presence_due_ns: 0,
            borrower: Borrower::default(),
        })
    }

    fn card(&self) -> &Card {
        &self.shared.cards[self.place]
    }

    fn driver(&self) -> Driver {
        self.card().found.driver
    }

    /// A status file that is gone is a card that is gone, unless the rest of it is there.
    fn check_presence(&mut self, now_ns: u64) -> Result<(), DeviceError> {
        if !self.card().gate.is_gone() {
            return Ok(());
        }
        if now_ns >= self.presence_due_ns {
            let device = self.card().found.device();
            if !device.exists() {
                return Err(DeviceError::Lost(format!("{} is gone", device.display())));
            }
            self.presence_due_ns = now_ns.saturating_add(SECOND_NS);
        }
        Ok(())
    }

    /// A card that sleeps says nothing, and what it said before is no longer so.
    fn fall_asleep(&mut self, reading: &mut Reading) {
        *reading = Reading { processes: mem::take(&mut reading.processes), ..Reading::default() };
        reading.processes.clear();
        (self.touched, self.activity, self.client_busy_pct, self.clients_read_ns) = (None, None, None, None);
        self.is_deferred = [true; QUESTIONS.len()];
        if let Some(sensors) = &mut self.sensors {
            sensors.forget_past();
        }
    }

    /// Whether `probe` may be put to the card now; where not, its last answer stands.
    fn may_read(&self, probe: usize, access: Access) -> bool {
        match access {
            Access::Asleep => false,
            _ if QUESTIONS[probe].is_gentle(self.driver()) => true,
            Access::Gentle => false,
            Access::Peek { since_ns } => self.read_ns[probe] < since_ns,
            Access::Full => true,
        }
    }

    /// Whether an idle card of xe, whose clients may not be read, is to be looked at now: once with each look through all of /proc, whichever
    /// card's turn that was in. While there can be none, it is looked at without.
    fn may_look_for_clients(&mut self, probe: usize, now_ns: u64) -> bool {
        let Some(clients) = self.shared.clients.as_ref().filter(|_| QUESTIONS[probe] == Question::Processes && self.driver() == Driver::Xe)
        else {
            return false;
        };
        let read_ns = self.read_ns[probe];
        let looked = self.borrower.take(clients, now_ns).map(|clients| clients.has_looked_since(read_ns));
        looked.unwrap_or_else(|| self.borrower.is_missed(now_ns)) && self.card().gate.may_read_clients(now_ns)
    }

    fn answer(&mut self, question: Question, access: Access, now: Now, reading: &mut Reading) -> Answer {
        let now_ns = now.boottime_ns;
        match question {
            Question::Clients => self.ask_clients(now),
            Question::Processes => self.ask_processes(now, reading),
            Question::Departures => self.ask_departures(now.boottime_ns, reading),
            Question::Memory if self.driver().is_intel() => self.ask_intel_memory(now_ns, reading),
            Question::Utilization if self.driver().is_intel() => self.ask_intel_utilization(reading),
            Question::Pcie => {
                let may_ask = access == Access::Full;
                let answer = self.pcie.ask(may_ask, now_ns, &mut reading.metrics);
                self.pcie_wait = self.pcie.wait(now_ns);
                answer
            }
            _ => self.ask_sensors(question, now, reading),
        }
    }

    fn ask_sensors(&mut self, question: Question, now: Now, reading: &mut Reading) -> Answer {
        let now_ns = now.boottime_ns;
        self.find_sensors(now_ns);
        let Self { shared, sensors: Some(sensors), .. } = self else { return Answer::Answered };
        let (files, metrics) = (&*shared.files, &mut reading.metrics);
        match question {
            Question::Memory => metrics.memory = sensors.memory(files, now_ns),
            Question::Sensors => sensors.hwmon(files, now_ns, metrics),
            Question::Clocks => sensors.clocks(files, now_ns, metrics),
            Question::Ecc if sensors.ecc.is_none() => return Answer::NotSupported,
            Question::Ecc => (metrics.ecc_corrected_total, metrics.ecc_uncorrected_total) = sensors.ecc_totals(files, now_ns).unzip(),
            Question::Metrics if sensors.table.is_none() && sensors.throttle.is_none() => return Answer::NotSupported,
            Question::Metrics => {
                let table = sensors.table(files, now_ns);
                let from_table = table.and_then(|table| table.throttle_reasons);
                metrics.throttle_reasons = from_table.or_else(|| sensors.throttle_reasons(files, now_ns));
                self.activity = table.and_then(|table| table.gfx_activity_pct).map(|pct| (pct, now_ns));
                self.is_table_of_use = table.is_none() || from_table.is_some();
            }
            Question::Utilization => self.ask_utilization(now, reading),
            Question::Clients | Question::Processes | Question::Departures | Question::Pcie => {}
        }
        Answer::Answered
    }

    fn ask_utilization(&mut self, now: Now, reading: &mut Reading) {
        let now_ns = now.boottime_ns;
        let Self { shared, sensors: Some(sensors), .. } = self else { return };
        let from_file = sensors.busy_pct(&*shared.files, now_ns);
        reading.metrics.mem_util_pct = sensors.memory_busy_pct(&*shared.files, now_ns);
        self.is_busy_broken = from_file.is_none();
        let from_table = self.activity.filter(|(_, at_ns)| now_ns.saturating_sub(*at_ns) <= ACTIVITY_HOLDS_NS).map(|(pct, _)| pct);
        // Raven's file may be stuck at 100; its processes know better.
        let is_idle = |process: &Process| process.utilization.is_none_or(|utilization| utilization.sm_pct == 0);
        let is_stuck =
            from_file == Some(100) && is_raven(&self.identity) && self.client_busy_pct == Some(0) && reading.processes.iter().all(is_idle);
        let busy_pct = from_file.or(from_table).filter(|_| !is_stuck);
        reading.metrics.sm_util_pct = busy_pct;
        reading.sampled = busy_pct.map(|_| now.stamp());
        if busy_pct > Some(0) {
            self.card().gate.has_worked(now_ns);
        }
    }

    /// One card's look serves all.
    fn ask_clients(&mut self, now: Now) -> Answer {
        let Some(clients) = &self.shared.clients else { return Answer::NotSupported };
        if !self.shared.looker.is_it(self.place, now.boottime_ns) {
            self.clients_wait = looker::WATCH_PERIOD;
            return Answer::Answered;
        }
        let looked = self.borrower.look(clients, now);
        self.clients_wait = looked.map_or(Duration::ZERO, |clients| clients.look_due_in(now));
        Answer::Answered
    }

    fn ask_processes(&mut self, now: Now, reading: &mut Reading) -> Answer {
        let Some(clients) = &self.shared.clients else { return Answer::NotSupported };
        let Some(mut clients) = self.borrower.read(clients, self.place, now) else {
            if self.borrower.is_missed(now.boottime_ns) {
                self.borrower.tell(&self.shared.cards[self.place].found.pci);
                self.forget_clients(reading);
            }
            return Answer::Answered;
        };
        self.has_read_clients = true;
        // Their utilization is that of the time since then, and stands until the next reading, which many clients put off.
        let before_ns = self.clients_read_ns.replace(now.boottime_ns);
        reading.process_sample_period = before_ns.map(|before_ns| Duration::from_nanos(now.boottime_ns.saturating_sub(before_ns)));
        clients.processes_of(self.place, &mut reading.processes);
        self.client_busy_pct = clients.busy_pct(self.place);
        self.sees_everybody = clients.sees_everybody();
        let has_worked = clients.made_progress(self.place);
        drop(clients);
        if has_worked {
            self.card().gate.has_worked(now.boottime_ns);
        }
        if self.driver().is_intel() {
            reading.sampled = self.client_busy_pct.map(|_| now.stamp());
        }
        Answer::Answered
    }

    /// While the clients are not read, what was known of them stands, but not of those that are gone.
    fn ask_departures(&mut self, now_ns: u64, reading: &mut Reading) -> Answer {
        let is_known = mem::take(&mut self.has_read_clients);
        let Some(clients) = &self.shared.clients else { return Answer::NotSupported };
        if !is_known && let Some(mut clients) = self.borrower.take(clients, now_ns) {
            clients.drop_departed(self.place);
            clients.processes_of(self.place, &mut reading.processes);
        }
        Answer::Answered
    }

    fn forget_clients(&mut self, reading: &mut Reading) {
        reading.processes.clear();
        reading.process_sample_period = None;
        (self.clients_read_ns, self.client_busy_pct, self.sees_everybody) = (None, None, false);
        if self.driver().is_intel() {
            reading.sampled = None;
        }
    }

    /// The busiest engine of all clients together.
    fn ask_intel_utilization(&mut self, reading: &mut Reading) -> Answer {
        reading.metrics.sm_util_pct = self.client_busy_pct;
        Answer::Answered
    }

    /// What the card's processes hold together, of what the kernel says there is.
    fn ask_intel_memory(&mut self, now_ns: u64, reading: &mut Reading) -> Answer {
        if self.card().is_integrated {
            return Answer::NotSupported;
        }
        let used = self
            .sees_everybody
            .then(|| reading.processes.iter().filter_map(|process| process.used_memory_bytes).fold(0, u64::saturating_add));
        reading.metrics.memory = used.zip(self.local_memory.total_bytes(now_ns)).map(|(used_bytes, total_bytes)| Memory {
            total_bytes,
            used_bytes: used_bytes.min(total_bytes),
            reserved_bytes: 0,
        });
        Answer::Answered
    }

    fn find_sensors(&mut self, now_ns: u64) {
        let is_lacking = self.sensors.as_ref().is_none_or(|sensors| !sensors.has_hwmon || sensors.have_moved());
        if self.sensors.is_none() || (is_lacking && now_ns.saturating_sub(self.found_ns) >= FIND_AGAIN_NS) {
            self.found_ns = now_ns;
            self.sensors = Some(Sensors::find(self.card(), &*self.shared.files));
        }
        if self.is_identity_partial {
            self.is_identity_partial = false;
            self.identity = identify(&self.card().found, self.identity.index, false, &*self.shared.files);
        }
    }
}

impl Device for DrmDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn probes(&self) -> &[Probe] {
        &PROBES
    }

    fn period(&self, probe: usize) -> Duration {
        match QUESTIONS[probe] {
            _ if self.is_deferred[probe] => Duration::ZERO,
            Question::Clients => self.clients_wait,
            Question::Pcie => self.pcie_wait,
            Question::Metrics if !self.is_table_of_use && !self.is_busy_broken => IDLE_TABLE_PERIOD,
            question => question.probe().period,
        }
    }

    fn ask(&mut self, probe: usize, now: Now, reading: &mut Reading) -> Result<Answer, DeviceError> {
        let now_ns = now.boottime_ns;
        self.shared.roster.check(now_ns)?;
        let access = self.card().gate.access(now_ns);
        self.check_presence(now_ns)?;
        if access == Access::Asleep {
            self.fall_asleep(reading);
            return Ok(Answer::Answered);
        }
        if self.shared.clients.is_none() && QUESTIONS[probe].is_of_clients(self.driver()) {
            return Ok(Answer::NotSupported);
        }
        self.shared.looker.saw(self.place, now_ns);
        let may_read = self.may_read(probe, access) || (access == Access::Gentle && self.may_look_for_clients(probe, now_ns));
        self.is_deferred[probe] = !may_read;
        if !may_read {
            if QUESTIONS[probe] == Question::Processes {
                self.clients_read_ns = None;
            }
            // What stands is as old as it is.
            reading.sampled = reading.sampled.or(self.touched);
            return Ok(Answer::Answered);
        }
        self.read_ns[probe] = now_ns;
        if !QUESTIONS[probe].is_gentle(self.driver()) {
            self.card().gate.touched(now_ns);
            self.touched = Some(now.stamp());
        }
        Ok(self.answer(QUESTIONS[probe], access, now, reading))
    }

    fn time_elsewhere(&self) -> Duration {
        self.pcie.time() + self.borrower.elsewhere()
    }

    fn time_waiting(&self) -> Duration {
        self.borrower.waiting()
    }
}
