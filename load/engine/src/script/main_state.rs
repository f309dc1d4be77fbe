//! The script's main state: `setup` for each thread before the run, `done` after it.

use super::state::{function, message, open, ScriptAddress};
use super::statistics::Statistics;
use super::thread::{Command, Facts};
use super::transfer::Transfer;
use super::Script;
use crate::outcome::Outcome;
use crate::plan::Shape;
use crate::sys::lua::flush_output;
use crate::sys::socket::Address;
use load_http1::request;
use mlua::{Lua, MetaMethod, Table, UserData, UserDataFields, UserDataMethods, UserDataRef};
use std::cell::RefCell;
use std::sync::mpsc::{channel, Sender};

/// A thread as `setup` and `done` see it.
struct ThreadHandle {
    commands: Sender<Command>,
    address: RefCell<Option<Address>>,
}

impl ThreadHandle {
    /// Asks the thread and waits for its answer.
    fn ask<T>(
        &self,
        command: impl FnOnce(Sender<Result<T, String>>) -> Command,
    ) -> mlua::Result<T> {
        ask(&self.commands, command).map_err(mlua::Error::runtime)
    }
}

fn ask<T>(
    commands: &Sender<Command>,
    command: impl FnOnce(Sender<Result<T, String>>) -> Command,
) -> Result<T, String> {
    let (reply, answer) = channel();
    let gone = "the thread has ended";
    commands.send(command(reply)).map_err(|_| gone)?;
    answer.recv().map_err(|_| gone)?
}

impl UserData for ThreadHandle {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("addr", |_, this| {
            Ok(this.address.borrow().clone().map(ScriptAddress))
        });
        fields.add_field_method_set("addr", |_, this, address: UserDataRef<ScriptAddress>| {
            *this.address.borrow_mut() = Some(address.0.clone());
            let sent = this.commands.send(Command::Address(address.0.clone()));
            sent.map_err(|_| mlua::Error::runtime("the thread has ended"))
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, this, name: String| {
            this.ask(|reply| Command::Get(name, reply))?.give(lua)
        });
        methods.add_method("set", |_, this, (name, value): (String, mlua::Value)| {
            let value = Transfer::take(&value)?;
            this.ask(|reply| Command::Set(name, value, reply))
        });
        // before the run and after it there is nothing to stop; a thread stops itself
        methods.add_method("stop", |_, _, ()| Ok(()));
        // as under wrk, an unknown field is its own name
        methods.add_meta_method(MetaMethod::Index, |_, _, key: mlua::Value| Ok(key));
    }
}

/// The main state.
pub struct ScriptMain {
    /// The script.
    pub script: Script,
    lua: Lua,
    /// What is wrong with the script's own text; the run goes on without the rest of it.
    pub fault: Option<String>,
}

impl ScriptMain {
    /// Loads the script and finds the addresses of its URL.
    pub fn open(script: Script) -> Result<ScriptMain, String> {
        let (lua, _, fault) = open(&script).map_err(|error| message(&error))?;
        let main = ScriptMain { script, lua, fault };
        main.resolve().map_err(|error| message(&error))?;
        flush_output();
        Ok(main)
    }

    fn resolve(&self) -> mlua::Result<()> {
        let url = &self.script.url;
        let service = url.port.as_deref().unwrap_or(&url.scheme);
        let wrk: Table = self.lua.globals().get("wrk")?;
        wrk.get::<mlua::Function>("resolve")?
            .call::<()>((url.host.as_str(), service))?;
        if wrk.get::<Table>("addrs")?.raw_len() == 0 {
            let text = format!("unable to connect to {}:{service}", url.host);
            return Err(mlua::Error::runtime(text));
        }
        Ok(())
    }

    /// Sets the threads up, one after the other; what thread 1 says decides for all.
    pub fn set_up(&self, threads: &[Sender<Command>]) -> Result<Shape, String> {
        let mut shape = Shape::default();
        for (number, commands) in threads.iter().enumerate() {
            self.set_up_thread(commands)
                .map_err(|error| message(&error))?;
            ask(commands, Command::Init)?;
            if number == 0 {
                shape = inspect(&ask(commands, Command::Inspect)?)?;
            }
        }
        flush_output();
        Ok(shape)
    }

    fn set_up_thread(&self, commands: &Sender<Command>) -> mlua::Result<()> {
        let handle = ThreadHandle {
            commands: commands.clone(),
            address: RefCell::default(),
        };
        let wrk: Table = self.lua.globals().get("wrk")?;
        wrk.get::<mlua::Function>("setup")?.call::<()>(handle)
    }

    /// Calls `done`, if the script has it.
    pub fn done(&self, outcome: &Outcome) -> Result<(), String> {
        let called = self.try_done(outcome).map_err(|error| message(&error));
        flush_output();
        called
    }

    fn try_done(&self, outcome: &Outcome) -> mlua::Result<()> {
        let Some(done) = function(&self.lua, "done") else {
            return Ok(());
        };
        let counts = &outcome.total.counts;
        let errors = self.lua.create_table()?;
        errors.set("connect", counts.errors.connect())?;
        errors.set("read", counts.errors.broken())?;
        errors.set("write", counts.errors.write)?;
        errors.set("status", counts.status_unless(|code| code <= 399))?;
        errors.set("timeout", counts.errors.timeout)?;
        let summary = self.lua.create_table()?;
        summary.set("duration", outcome.window_length_ns / 1000)?;
        summary.set("requests", outcome.completed_in_window)?;
        summary.set("bytes", outcome.bytes_in_window)?;
        summary.set("errors", errors)?;
        let open = self.script.open_loop;
        let latency = Statistics::latency(outcome.total.times.counting(open), open);
        done.call::<()>((
            summary,
            latency,
            Statistics::requests(&outcome.total.rates, open),
        ))
    }
}

/// Looks at the first request: is it one, and how many are in it?
fn inspect(facts: &Facts) -> Result<Shape, String> {
    let depth = request::count(&facts.request)
        .map_err(|(line, column)| format!("incomplete request at {line}:{column}"))?;
    Ok(Shape {
        depth,
        ..facts.shape
    })
}
