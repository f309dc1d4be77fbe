//! Values that go from one state to another: `thread:get` and `thread:set`.

use mlua::{Lua, Value};

/// Tables in tables are followed so far; deeper ones are refused rather than followed for ever.
const DEPTH_MAX: usize = 100;

/// A copy of a value that belongs to no state.
#[derive(Clone, Debug, PartialEq)]
pub enum Transfer {
    /// nil
    Nil,
    /// true or false
    Boolean(bool),
    /// Any number.
    Number(f64),
    /// Bytes up to the first NUL, which is where wrk cuts them.
    Text(Vec<u8>),
    /// Keys and values.
    Table(Vec<(Transfer, Transfer)>),
}

impl Transfer {
    /// Copies a value out of its state.
    pub fn take(value: &Value) -> mlua::Result<Transfer> {
        Transfer::take_at(value, 0)
    }

    fn take_at(value: &Value, depth: usize) -> mlua::Result<Transfer> {
        if depth > DEPTH_MAX {
            return Err(mlua::Error::runtime(
                "cannot transfer a table that contains itself",
            ));
        }
        Ok(match value {
            Value::Nil => Transfer::Nil,
            Value::Boolean(truth) => Transfer::Boolean(*truth),
            Value::Integer(number) => Transfer::Number(*number as f64),
            Value::Number(number) => Transfer::Number(*number),
            Value::String(text) => {
                let bytes = text.as_bytes();
                let end = bytes
                    .iter()
                    .position(|&byte| byte == 0)
                    .unwrap_or(bytes.len());
                Transfer::Text(bytes[..end].to_vec())
            }
            Value::Table(table) => {
                let mut pairs = Vec::new();
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair?;
                    let key = Transfer::take_at(&key, depth + 1)?;
                    pairs.push((key, Transfer::take_at(&value, depth + 1)?));
                }
                Transfer::Table(pairs)
            }
            other => {
                let kind = other.type_name();
                return Err(mlua::Error::runtime(format!(
                    "cannot transfer '{kind}' to thread"
                )));
            }
        })
    }

    /// Makes the value again in a state.
    pub fn give(&self, lua: &Lua) -> mlua::Result<Value> {
        Ok(match self {
            Transfer::Nil => Value::Nil,
            Transfer::Boolean(truth) => Value::Boolean(*truth),
            Transfer::Number(number) => Value::Number(*number),
            Transfer::Text(bytes) => Value::String(lua.create_string(bytes)?),
            Transfer::Table(pairs) => {
                let table = lua.create_table()?;
                for (key, value) in pairs {
                    table.raw_set(key.give(lua)?, value.give(lua)?)?;
                }
                Value::Table(table)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_arrive_as_they_were_and_text_ends_at_nul() {
        let (from, to) = (Lua::new(), Lua::new());
        let value: Value = from
            .load("return {1, 'two', {deep = true}, ['a b'] = 'x\\0y'}")
            .eval()
            .expect("runs");
        let copy = Transfer::take(&value)
            .expect("can go")
            .give(&to)
            .expect("arrives");
        to.globals().set("t", copy).expect("set");
        let same: bool = to
            .load("return t[1] == 1 and t[2] == 'two' and t[3].deep == true and t['a b'] == 'x'")
            .eval()
            .expect("runs");
        assert!(same);
    }

    #[test]
    fn functions_and_endless_tables_are_refused() {
        let lua = Lua::new();
        let value: Value = lua.load("return print").eval().expect("runs");
        assert!(Transfer::take(&value).is_err());
        let value: Value = lua
            .load("local t = {}; t.t = t; return t")
            .eval()
            .expect("runs");
        assert!(Transfer::take(&value).is_err());
    }
}
