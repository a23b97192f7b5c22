//! One call.

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use nix::sys::signal::{SigHandler, Signal, raise, signal};

use super::{
    argument::Target,
    handle::{self, Place},
    library::{Library, library},
    loaded::{Gpu, Loaded},
    spend::{hang, spend},
};
use crate::{
    abi::{nvmlDevice_t, nvmlReturn_t},
    scenario::{Code, CostMode, Effect},
    stamp,
    stats::table::NO_DEVICE,
    symbols::Symbol,
};

/// How a call's body ends: well, or with a return code.
pub(crate) type Done = Result<(), Code>;

/// A call on its way.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) symbol: Symbol,
    pub(crate) library: &'static Library,
    pub(crate) loaded: &'a Loaded,
    row: usize,
}

/// Does what every call does, and the body of this one.
pub(crate) fn enter(symbol: Symbol, target: Target, body: impl FnOnce(&Call<'_>) -> Done) -> nvmlReturn_t {
    let library = library();
    library.look();
    let device = match target {
        Target::None => None,
        Target::Index(index) => Some(index as usize),
        Target::Handle(handle) => handle::decode(handle).ok().map(|(device, _)| device),
    };
    let row = device.map_or(NO_DEVICE, |device| device.min(NO_DEVICE));
    let begun = Instant::now();
    let waiting_ns = Cell::new(0);
    library.table.begin(symbol, row);
    let code = answer(library, symbol, device, row, &waiting_ns, body).err().unwrap_or(Code::SUCCESS);
    library.table.end(symbol, row, code == Code::SUCCESS, elapsed_ns(begun), waiting_ns.get());
    code
}

fn answer(
    library: &'static Library,
    symbol: Symbol,
    device: Option<usize>,
    row: usize,
    waiting_ns: &Cell<u64>,
    body: impl FnOnce(&Call<'_>) -> Done,
) -> Done {
    loop {
        let loaded = library.loaded();
        let gpu = device.and_then(|device| loaded.gpus.get(device));
        let _held = (loaded.scenario.costs.mode == CostMode::OneLock).then(|| {
            let begun = Instant::now();
            let held = library.lock_driver();
            waiting_ns.set(waiting_ns.get() + elapsed_ns(begun));
            held
        });
        let effect = loaded.effect(symbol, gpu);
        match effect {
            Some(Effect::Hang { spin, for_ever }) => {
                hang(spin, || !for_ever && changed(library, &loaded));
                continue;
            }
            Some(Effect::Crash) => crash(),
            Some(Effect::Return(_)) | None => {}
        }
        if loaded.is_missing(symbol) {
            return Err(Code::FUNCTION_NOT_FOUND);
        }
        if stamp::own().is_some_and(|own| own.as_bytes() != loaded.scenario.driver_version.as_bytes()) && !needs_no_driver(symbol) {
            return Err(Code::LIB_RM_VERSION_MISMATCH);
        }
        let call = Call { symbol, library, loaded: &loaded, row };
        call.spend(loaded.cost_us(symbol, gpu));
        return match effect {
            Some(Effect::Return(Code::SUCCESS)) => Ok(()),
            Some(Effect::Return(code)) => Err(code),
            _ => body(&call),
        };
    }
}

const fn needs_no_driver(symbol: Symbol) -> bool {
    matches!(symbol, Symbol::nvmlErrorString | Symbol::nvmlSystemGetNVMLVersion | Symbol::nvmlShutdown)
}

fn changed(library: &Library, loaded: &Arc<Loaded>) -> bool {
    library.look();
    library.loaded().generation != loaded.generation
}

fn elapsed_ns(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Ends the process as a bad memory access would.
#[expect(unsafe_code, reason = "the standard library's handler survives a SIGSEGV that was sent: it must go first")]
fn crash() {
    // SAFETY: the default disposition runs no code of ours.
    let default = unsafe { signal(Signal::SIGSEGV, SigHandler::SigDfl) };
    if default.is_ok() {
        // Cannot fail for a signal that exists; and then does not return.
        let _ = raise(Signal::SIGSEGV);
    }
}

impl<'a> Call<'a> {
    /// Spends time on top of the call's own.
    pub(crate) fn spend(&self, us: u64) {
        spend(self.loaded.scenario.costs.mode, us);
    }

    /// Counts a field that was asked for.
    pub(crate) fn count_field(&self, id: u32, success: bool) {
        self.library.table.field(id, self.row, success);
    }

    /// The library has been initialized.
    pub(crate) fn initialized(&self) -> Done {
        if self.library.users.load(Relaxed) == 0 { Err(Code::UNINITIALIZED) } else { Ok(()) }
    }

    /// What a handle means: a device or a MIG device.
    pub(crate) fn place(&self, handle: nvmlDevice_t) -> Result<Place<'a>, Code> {
        self.initialized()?;
        handle::place(&self.loaded.gpus, handle)
    }

    /// The device of a handle, for calls that do not know MIG devices.
    pub(crate) fn gpu(&self, handle: nvmlDevice_t) -> Result<&'a Gpu, Code> {
        let place = self.place(handle)?;
        if place.instance.is_some() { Err(Code::NOT_SUPPORTED) } else { Ok(place.gpu) }
    }
}
