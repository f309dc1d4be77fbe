//! A script's state in a sending thread.

use super::state::{function, message, open, LastFields, ScriptAddress};
use super::transfer::Transfer;
use super::Script;
use crate::plan::Shape;
use crate::sys::socket::Address;
use load_http1::Sink;
use mlua::{
    Function, Lua, MetaMethod, Table, UserData, UserDataFields, UserDataMethods, UserDataRef,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender};

/// A command of the main thread to a thread's state.
pub enum Command {
    /// Read a global.
    Get(String, Sender<Result<Transfer, String>>),
    /// Set a global.
    Set(String, Transfer, Sender<Result<(), String>>),
    /// Use this address.
    Address(Address),
    /// Run `init`.
    Init(Sender<Result<(), String>>),
    /// Render a request to look at, and say what the script defines.
    Inspect(Sender<Result<Facts, String>>),
    /// Go on with the run (first time) or end (second time).
    Proceed(Shape),
    /// There will be no run.
    GiveUp,
}

/// What a script defines, and one of its requests.
#[derive(Clone, Debug)]
pub struct Facts {
    /// A request as the thread would send it.
    pub request: Vec<u8>,
    /// What it defines.
    pub shape: Shape,
}

/// Where a thread sends, if its script says so.
#[derive(Default)]
struct Place {
    address: RefCell<Option<Address>>,
    is_new: Cell<bool>,
}

impl Place {
    fn set(&self, address: Address) {
        *self.address.borrow_mut() = Some(address);
        self.is_new.set(true);
    }
}

/// The thread as its own script sees it: `wrk.thread`.
struct OwnThread {
    address: Rc<Place>,
    stop: Rc<Cell<bool>>,
}

impl UserData for OwnThread {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("addr", |_, this| {
            Ok(this.address.address.borrow().clone().map(ScriptAddress))
        });
        fields.add_field_method_set("addr", |_, this, address: UserDataRef<ScriptAddress>| {
            this.address.set(address.0.clone());
            Ok(())
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("stop", |_, this, ()| {
            this.stop.set(true);
            Ok(())
        });
        methods.add_method("get", |lua, _, name: String| {
            lua.globals().get::<mlua::Value>(name)
        });
        methods.add_method("set", |lua, _, (name, value): (String, mlua::Value)| {
            lua.globals().set(name, value)
        });
        // as under wrk, an unknown field is its own name
        methods.add_meta_method(MetaMethod::Index, |_, _, key: mlua::Value| Ok(key));
    }
}

/// Headers and body of an answer, for `response`.
#[derive(Default)]
pub struct Answer {
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

impl Answer {
    /// The bytes of the body.
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }
}

impl Sink for Answer {
    fn header(&mut self, name: &[u8], value: &[u8]) {
        self.headers.push((name.to_vec(), value.to_vec()));
    }

    fn body(&mut self, piece: &[u8]) {
        self.body.extend_from_slice(piece);
    }
}

/// The state and the functions that the run calls.
pub struct ThreadScript {
    lua: Lua,
    arguments: Vec<String>,
    stop: Rc<Cell<bool>>,
    place: Rc<Place>,
    /// The decision for all threads.
    pub shape: Shape,
    request: Function,
    response: Function,
    delay: Function,
}

impl ThreadScript {
    /// Loads the script in a state of this thread.
    pub fn open(script: &Script) -> Result<ThreadScript, String> {
        // the main state has already reported a fault in the script's text
        let (lua, calls, _) = open(script).map_err(|error| message(&error))?;
        let call = |name| calls.get(name).map_err(|error| message(&error));
        Ok(ThreadScript {
            request: call("request")?,
            response: call("response")?,
            delay: call("delay")?,
            lua,
            arguments: script.arguments.clone(),
            stop: Rc::default(),
            place: Rc::default(),
            shape: Shape::default(),
        })
    }

    /// Does what the main thread asks until it says to proceed; false if it is gone.
    pub fn serve(&mut self, commands: &Receiver<Command>) -> bool {
        for command in commands {
            // an asker that is gone needs no answer
            match command {
                Command::Get(name, reply) => drop(reply.send(self.get(&name))),
                Command::Set(name, value, reply) => drop(reply.send(self.set(&name, &value))),
                Command::Address(address) => self.place.set(address),
                Command::Init(reply) => drop(reply.send(self.init())),
                Command::Inspect(reply) => drop(reply.send(self.inspect())),
                Command::Proceed(shape) => {
                    self.shape = shape;
                    return true;
                }
                Command::GiveUp => return false,
            }
        }
        false
    }

    fn get(&self, name: &str) -> Result<Transfer, String> {
        let value = self.lua.globals().get::<mlua::Value>(name);
        value
            .and_then(|value| Transfer::take(&value))
            .map_err(|error| message(&error))
    }

    fn set(&self, name: &str, value: &Transfer) -> Result<(), String> {
        let set = value
            .give(&self.lua)
            .and_then(|value| self.lua.globals().set(name, value));
        set.map_err(|error| message(&error))
    }

    fn init(&mut self) -> Result<(), String> {
        self.try_init().map_err(|error| message(&error))
    }

    fn try_init(&mut self) -> mlua::Result<()> {
        let wrk: Table = self.lua.globals().get("wrk")?;
        let own = OwnThread {
            address: Rc::clone(&self.place),
            stop: Rc::clone(&self.stop),
        };
        wrk.set("thread", own)?;
        let arguments = self.lua.create_table()?;
        for (index, argument) in self.arguments.iter().enumerate() {
            arguments.raw_set(index, argument.as_str())?;
        }
        wrk.get::<Function>("init")?.call::<()>(arguments)
    }

    fn inspect(&mut self) -> Result<Facts, String> {
        let shape = Shape {
            depth: 1,
            dynamic: function(&self.lua, "request").is_some(),
            wants_answers: function(&self.lua, "response").is_some(),
            delays: function(&self.lua, "delay").is_some(),
        };
        Ok(Facts {
            request: self.request()?,
            shape,
        })
    }

    /// The next request.
    pub fn request(&mut self) -> Result<Vec<u8>, String> {
        let made = self.request.call::<mlua::Value>(());
        let made = made.map_err(|error| message(&error))?;
        let kind = made.type_name();
        let text = self.lua.coerce_string(made).ok().flatten();
        let text = text.ok_or_else(|| {
            format!(
                "request: returned {kind} (return the text of a request, as wrk.format makes it)"
            )
        })?;
        let bytes = text.as_bytes().to_vec();
        Ok(bytes)
    }

    /// Shows an answer to the script.
    pub fn answer(&mut self, status: u16, answer: Answer) -> Result<(), String> {
        self.show(status, answer).map_err(|error| message(&error))
    }

    fn show(&self, status: u16, answer: Answer) -> mlua::Result<()> {
        let headers = self.lua.create_table()?;
        for (name, value) in &answer.headers {
            headers.raw_set(
                self.lua.create_string(name)?,
                self.lua.create_string(value)?,
            )?;
        }
        let body = self.lua.create_string(&answer.body)?;
        self.lua.set_app_data(LastFields(answer.headers));
        self.response.call::<()>((status, headers, body))
    }

    /// How long the next request shall wait.
    pub fn delay_ns(&mut self) -> Result<u64, String> {
        let value = self.delay.call::<mlua::Value>(());
        let value = value.map_err(|error| message(&error))?;
        // as under wrk, anything but a number means 0
        let ms = self.lua.coerce_number(value).ok().flatten();
        Ok((ms.unwrap_or(0.0).max(0.0) * 1e6) as u64)
    }

    /// Where new connections of this thread go from now on, if the script has said so since this was
    /// asked last.
    #[inline]
    pub fn new_address(&self) -> Option<Address> {
        if !self.place.is_new.replace(false) {
            return None;
        }
        self.place.address.borrow().clone()
    }

    /// A thread that runs only now could not be stopped before; wrk forgets such a stop too.
    pub fn forget_stop(&mut self) {
        self.stop.set(false);
    }

    /// Whether the script has ended this thread's load.
    pub fn stopped(&self) -> bool {
        self.stop.get()
    }
}
