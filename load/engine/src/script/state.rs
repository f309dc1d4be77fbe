//! A Lua state with the table `wrk` in it.

use super::Script;
use crate::sys::lua;
use crate::sys::socket::{has_met_itself, Address};
use mlua::{Function, Lua, MetaMethod, Table, UserData, UserDataMethods, Value, Variadic};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest wait of `wrk.connect`.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// An address as scripts see it.
#[derive(Clone, Debug)]
pub struct ScriptAddress(pub Address);

impl UserData for ScriptAddress {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| Ok(this.0.to_string()));
    }
}

/// Opens a state and runs the script in it. A fault of the script's own text is returned with
/// the state: wrk prints it and goes on with what was defined before it.
///
/// The table has the functions that call the script's own `request`, `response` and `delay`.
pub fn open(script: &Script) -> mlua::Result<(Lua, Table, Option<String>)> {
    let lua = lua::open();
    let (wrk, calls): (Table, Table) = lua
        .load(include_str!("prelude.lua"))
        .set_name("=wrk")
        .eval()?;
    fill(&lua, &wrk, script)?;
    lua.globals().set("wrk", wrk)?;
    // the name makes messages begin with file and line, as those of wrk
    let loaded = lua
        .load(&script.text[..])
        .set_name(format!("@{}", script.file))
        .exec();
    let fault = loaded
        .err()
        .map(|error| format!("{}: {}", script.file, message(&error)));
    let unresolved = lua.remove_app_data::<Unresolved>();
    if let Some(Unresolved(text)) = unresolved {
        return Err(mlua::Error::runtime(text));
    }
    Ok((lua, calls, fault))
}

/// `wrk.lookup` found nothing: wrk exits there, whatever the script would do about it.
struct Unresolved(String);

fn unresolved(lua: &Lua, text: String) -> mlua::Error {
    lua.set_app_data(Unresolved(text.clone()));
    mlua::Error::runtime(text)
}

fn fill(lua: &Lua, wrk: &Table, script: &Script) -> mlua::Result<()> {
    let url = &script.url;
    wrk.set("scheme", url.scheme.as_str())?;
    wrk.set("host", url.host.as_str())?;
    wrk.set("port", url.port.as_deref())?;
    wrk.set("path", url.path.as_str())?;
    wrk.set("method", script.method.as_str())?;
    if let Some(body) = &script.body {
        wrk.set("body", lua.create_string(body)?)?;
    }
    let headers: Table = wrk.get("headers")?;
    for (name, value) in &script.headers {
        headers.raw_set(name.as_str(), value.as_str())?;
    }
    wrk.set("lookup", lua.create_function(lookup)?)?;
    let connect = if script.is_udp {
        lua.create_function(|_, _: mlua::UserDataRef<ScriptAddress>| Ok(true))
    } else {
        lua.create_function(connect)
    };
    wrk.set("connect", connect?)?;
    wrk.set("fields", lua.create_function(fields)?)?;
    wrk.set("time_us", lua.create_function(|_, ()| Ok(unix_us()))?)
}

/// Microseconds since 1970, as wrk2 gives them to scripts.
fn unix_us() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as f64
}

fn lookup(lua: &Lua, (host, service): (String, Value)) -> mlua::Result<Table> {
    let service = match &service {
        Value::String(text) => text.to_string_lossy(),
        Value::Integer(number) => number.to_string(),
        Value::Number(number) => number.to_string(),
        // as getaddrinfo without a service: port 0
        Value::Nil => "0".to_string(),
        _ => {
            return Err(mlua::Error::runtime(
                "wrk.lookup: invalid service (a name or a number)",
            ))
        }
    };
    let port = port_of(&service)
        .ok_or_else(|| unresolved(lua, format!("unable to resolve {host}:{service}")))?;
    if host.starts_with('/') {
        let address = ScriptAddress(Address::Unix(host.into()));
        return lua.create_sequence_from([lua.create_userdata(address)?]);
    }
    let found = (host.as_str(), port).to_socket_addrs();
    let found = found
        .map_err(|error| unresolved(lua, format!("unable to resolve {host}:{service} {error}")))?;
    let list = lua.create_table()?;
    for address in found {
        list.push(lua.create_userdata(ScriptAddress(Address::Inet(address)))?)?;
    }
    Ok(list)
}

/// A number, or a name that the system knows.
fn port_of(service: &str) -> Option<u16> {
    if let Ok(port) = service.parse() {
        return Some(port);
    }
    match service {
        "http" | "unix" => return Some(80),
        "https" => return Some(443),
        _ => {}
    }
    let known = std::fs::read_to_string("/etc/services").ok()?;
    known.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let port = words.next()?.strip_suffix("/tcp")?;
        if name == service {
            port.parse().ok()
        } else {
            None
        }
    })
}

fn connect(_: &Lua, address: mlua::UserDataRef<ScriptAddress>) -> mlua::Result<bool> {
    Ok(match &address.0 {
        Address::Inet(address) => TcpStream::connect_timeout(address, CONNECT_MAX)
            .is_ok_and(|stream| !has_met_itself(&stream)),
        Address::Unix(path) => UnixStream::connect(path).is_ok(),
    })
}

/// Header fields of the last response, in the order in which they came.
pub struct LastFields(pub Vec<(Vec<u8>, Vec<u8>)>);

/// All values of a field of the last response. The table that `response` receives has one value for each
/// field, as under wrk: the last.
fn fields(lua: &Lua, name: mlua::String) -> mlua::Result<Variadic<mlua::String>> {
    let last = lua.app_data_ref::<LastFields>();
    let all = last.iter().flat_map(|last| &last.0);
    let own = all.filter(|(own, _)| own.eq_ignore_ascii_case(&name.as_bytes()));
    own.map(|(_, value)| lua.create_string(value)).collect()
}

/// A global function, if the script has defined it.
pub fn function(lua: &Lua, name: &str) -> Option<Function> {
    lua.globals().get::<Option<Function>>(name).ok().flatten()
}

/// The text of an error with its traceback.
pub fn message(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { traceback, cause } => {
            format!("{}\n{traceback}", message(cause))
        }
        mlua::Error::RuntimeError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
