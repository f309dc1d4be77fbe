//! The script of a thread while the load goes on, and how long its users think.

use crate::plan::{Plan, Rendered, Shape, Target, Think};
use crate::random::Random;
use crate::script::{Answer, ThreadScript};
use crate::sys::signal::request_stop;
use crate::sys::socket::Address;
use std::io;

/// A thread's script, if there is one.
pub(super) struct Scripting {
    script: Option<ThreadScript>,
    /// Why the script ended the run.
    fault: Option<String>,
    think: Option<Think>,
    /// Draws think times.
    random: Random,
}

impl Scripting {
    /// Of thread `number`.
    pub fn new(plan: &Plan, number: usize, script: Option<ThreadScript>) -> Scripting {
        Scripting {
            script,
            fault: None,
            think: plan.think(),
            random: Random::new(number as u64),
        }
    }

    /// The callbacks of the script, if there is one.
    #[inline]
    pub fn shape(&self) -> Option<Shape> {
        self.script.as_ref().map(|script| script.shape)
    }

    /// Whether the script makes each request.
    #[inline]
    pub fn is_dynamic(&self) -> bool {
        self.shape().is_some_and(|shape| shape.dynamic)
    }

    /// Whether requests wait before they are sent.
    #[inline]
    pub fn delays(&self) -> bool {
        self.think.is_some() || self.shape().is_some_and(|shape| shape.delays)
    }

    /// Puts what the script says about address and request in the place of the plan's targets.
    pub fn adopt(&mut self, targets: &mut Vec<Target>) -> io::Result<()> {
        let Some(script) = &mut self.script else {
            return Ok(());
        };
        targets.truncate(1);
        let Some(target) = targets.first_mut() else {
            return Ok(());
        };
        let own = script.new_address();
        if let Some(address) = own.filter(|address| *address != target.address) {
            target.address = address;
            target.others.clear();
        }
        if !script.shape.dynamic {
            let bytes = script.request().map_err(io::Error::other)?;
            target.requests = vec![Rendered::of_text(bytes)];
            target.order = vec![0];
        }
        Ok(())
    }

    /// The next request, or the script's fault.
    pub fn request(&mut self) -> Option<Result<Vec<u8>, String>> {
        Some(self.script.as_mut()?.request())
    }

    /// How long the next request waits: as the script says, and for the user to think.
    pub fn delay_ns(&mut self) -> Result<u64, String> {
        let mut delay_ns = 0;
        if let Some(script) = self.script.as_mut().filter(|script| script.shape.delays) {
            delay_ns = script.delay_ns()?;
        }
        let drawn_ns = self.think.map_or(0, |think| {
            let range = think.most_ns - think.least_ns + 1;
            think.least_ns + self.random.bits() % range
        });
        Ok(delay_ns.saturating_add(drawn_ns))
    }

    /// Shows an answer to the script that wants to see it.
    pub fn show(&mut self, status: u16, answer: Answer) {
        let script = self.script.as_mut();
        let Some(script) = script.filter(|script| script.shape.wants_answers) else {
            return;
        };
        if let Err(fault) = script.answer(status, answer) {
            self.note_fault(fault);
        }
    }

    /// Where new connections go from now on, if the script has said so since this was asked last.
    #[inline]
    pub fn new_address(&self) -> Option<Address> {
        self.script.as_ref().and_then(ThreadScript::new_address)
    }

    /// Keeps the first fault of the script, which ends the load of all threads.
    pub fn note_fault(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
        request_stop();
    }

    /// Whether the script has failed.
    pub fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether the script has ended this thread's load.
    pub fn has_stopped(&self) -> bool {
        self.script.as_ref().is_some_and(ThreadScript::stopped)
    }

    /// A thread that runs only now could not be stopped before.
    pub fn forget_stop(&mut self) {
        if let Some(script) = &mut self.script {
            script.forget_stop();
        }
    }

    /// Gives up the script's fault and the script.
    pub fn into_parts(self) -> (Option<String>, Option<ThreadScript>) {
        (self.fault, self.script)
    }
}
