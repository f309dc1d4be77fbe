//! Records of the result file: one definition makes the type, writes and reads its JSON, adds two of
//! them, and describes them as JSON Schema (draft 2020-12).

use serde_json::{json, Map, Value};
use std::collections::BTreeMap;

/// The schemas of all records that one is made of, by name.
pub type Definitions = Map<String, Value>;

/// A value of the result file.
pub trait Field: Sized + Default {
    /// As JSON.
    fn write(&self) -> Value;

    /// From JSON, or what is wrong with it. Members that an older file lacks have their defaults.
    fn read(value: &Value) -> Result<Self, String>;

    /// Adds that of another result. Texts and flags stay.
    fn add(&mut self, _other: &Self) -> Result<(), String> {
        Ok(())
    }

    /// Its schema; those of records go to `definitions`.
    fn schema(definitions: &mut Definitions) -> Value;
}

/// A member of an object.
pub fn member<T: Field>(object: &Map<String, Value>, name: &str) -> Result<T, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::read(value).map_err(|why| within(name, &why)),
    }
}

/// A fault with its place.
pub fn within(name: &str, why: &str) -> String {
    if why.starts_with(is_name) {
        format!("{name}.{why}")
    } else {
        format!("{name}{why}")
    }
}

fn is_name(first: char) -> bool {
    first.is_ascii_alphanumeric() || first == '_'
}

/// Declares a record: a struct with its text, whose fields are [`Field`]s with theirs. With `adds PATH`
/// two of them are added by that function instead of field by field.
macro_rules! record {
    ($(#[doc = $about:literal])+ $name:ident $(adds $adds:path)? {
        $($(#[doc = $text:literal])+ $field:ident: $kind:ty,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[doc = $text])+ pub $field: $kind,)+
        }

        impl $crate::result::record::Field for $name {
            fn write(&self) -> serde_json::Value {
                let mut object = serde_json::Map::new();
                $(object.insert(stringify!($field).to_string(), self.$field.write());)+
                serde_json::Value::Object(object)
            }

            fn read(value: &serde_json::Value) -> Result<Self, String> {
                let object = value.as_object().ok_or(": not an object")?;
                Ok($name {
                    $($field: $crate::result::record::member(object, stringify!($field))?,)+
                })
            }

            fn add(&mut self, other: &Self) -> Result<(), String> {
                record!(@add self, other, ($($adds)?), $($field)+)
            }

            fn schema(
                definitions: &mut $crate::result::record::Definitions,
            ) -> serde_json::Value {
                let name = stringify!($name);
                if !definitions.contains_key(name) {
                    // a place for it first, so that it stands before its parts
                    definitions.insert(name.to_string(), serde_json::Value::Null);
                    let mut properties = serde_json::Map::new();
                    $(
                        let mut one = <$kind>::schema(definitions);
                        one["description"] = concat!($($text),+).trim().into();
                        properties.insert(stringify!($field).to_string(), one);
                    )+
                    definitions[name] = serde_json::json!({
                        "type": "object",
                        "description": concat!($($about),+).trim(),
                        "properties": properties,
                    });
                }
                serde_json::json!({"$ref": format!("#/$defs/{name}")})
            }
        }
    };
    (@add $own:ident, $other:ident, (), $($field:ident)+) => {{
        $($own.$field.add(&$other.$field).map_err(|why| {
            $crate::result::record::within(stringify!($field), &why)
        })?;)+
        Ok(())
    }};
    (@add $own:ident, $other:ident, ($adds:path), $($field:ident)+) => {
        $adds($own, $other)
    };
}
pub(crate) use record;

impl Field for u64 {
    fn write(&self) -> Value {
        json!(self)
    }

    fn read(value: &Value) -> Result<u64, String> {
        // sums of earlier builds have parts of a response where a second was cut
        let rounded = || value.as_f64().filter(|figure| *figure >= 0.0);
        let whole = value
            .as_u64()
            .or_else(|| rounded().map(|figure| figure.round() as u64));
        whole.ok_or(": not a whole number".to_string())
    }

    fn add(&mut self, other: &u64) -> Result<(), String> {
        *self = self.saturating_add(*other);
        Ok(())
    }

    fn schema(_: &mut Definitions) -> Value {
        json!({"type": "integer", "minimum": 0})
    }
}

impl Field for f64 {
    fn write(&self) -> Value {
        json!(self)
    }

    fn read(value: &Value) -> Result<f64, String> {
        value.as_f64().ok_or(": not a number".to_string())
    }

    fn add(&mut self, other: &f64) -> Result<(), String> {
        *self += other;
        Ok(())
    }

    fn schema(_: &mut Definitions) -> Value {
        json!({"type": "number"})
    }
}

impl Field for bool {
    fn write(&self) -> Value {
        json!(self)
    }

    fn read(value: &Value) -> Result<bool, String> {
        value.as_bool().ok_or(": not true or false".to_string())
    }

    fn schema(_: &mut Definitions) -> Value {
        json!({"type": "boolean"})
    }
}

impl Field for String {
    fn write(&self) -> Value {
        json!(self)
    }

    fn read(value: &Value) -> Result<String, String> {
        let text = value.as_str().map(String::from);
        text.ok_or(": not a text".to_string())
    }

    fn schema(_: &mut Definitions) -> Value {
        json!({"type": "string"})
    }
}

impl<T: Field + Clone> Field for Option<T> {
    fn write(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::write)
    }

    fn read(value: &Value) -> Result<Option<T>, String> {
        if value.is_null() {
            return Ok(None);
        }
        T::read(value).map(Some)
    }

    fn add(&mut self, other: &Option<T>) -> Result<(), String> {
        match (self, other) {
            (Some(own), Some(other)) => own.add(other),
            (own @ None, Some(_)) => {
                own.clone_from(other);
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    fn schema(definitions: &mut Definitions) -> Value {
        json!({"anyOf": [T::schema(definitions), {"type": "null"}]})
    }
}

/// Lists are added place by place; what only the longer one has stays as it is there.
impl<T: Field + Clone> Field for Vec<T> {
    fn write(&self) -> Value {
        self.iter().map(T::write).collect()
    }

    fn read(value: &Value) -> Result<Vec<T>, String> {
        let list = value.as_array().ok_or(": not a list")?.iter().enumerate();
        list.map(|(place, one)| T::read(one).map_err(|why| within(&format!("[{place}]"), &why)))
            .collect()
    }

    fn add(&mut self, other: &Vec<T>) -> Result<(), String> {
        for (place, (own, other)) in self.iter_mut().zip(other).enumerate() {
            own.add(other)
                .map_err(|why| within(&format!("[{place}]"), &why))?;
        }
        let more = other.get(self.len()..).unwrap_or_default();
        self.extend_from_slice(more);
        Ok(())
    }

    fn schema(definitions: &mut Definitions) -> Value {
        json!({"type": "array", "items": T::schema(definitions)})
    }
}

impl<T: Field + Clone> Field for BTreeMap<String, T> {
    fn write(&self) -> Value {
        let each = self.iter().map(|(name, one)| (name.clone(), one.write()));
        Value::Object(each.collect())
    }

    fn read(value: &Value) -> Result<BTreeMap<String, T>, String> {
        let object = value.as_object().ok_or(": not an object")?.iter();
        object
            .map(|(name, one)| {
                let one = T::read(one).map_err(|why| within(name, &why))?;
                Ok((name.clone(), one))
            })
            .collect()
    }

    fn add(&mut self, other: &BTreeMap<String, T>) -> Result<(), String> {
        for (name, one) in other {
            match self.get_mut(name) {
                Some(own) => own.add(one).map_err(|why| within(name, &why))?,
                None => drop(self.insert(name.clone(), one.clone())),
            }
        }
        Ok(())
    }

    fn schema(definitions: &mut Definitions) -> Value {
        json!({"type": "object", "additionalProperties": T::schema(definitions)})
    }
}

/// A number that is none of the quantities that are added: the same in each result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Same<T>(pub T);

impl<T: Field> Field for Same<T> {
    fn write(&self) -> Value {
        self.0.write()
    }

    fn read(value: &Value) -> Result<Same<T>, String> {
        T::read(value).map(Same)
    }

    fn schema(definitions: &mut Definitions) -> Value {
        T::schema(definitions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    record! {
        /// A part.
        Part {
            /// How many.
            count: u64,
            /// Which one.
            number: Same<u64>,
        }
    }

    record! {
        /// A whole.
        Whole {
            /// Its name.
            name: String,
            /// Its parts.
            parts: BTreeMap<String, Part>,
            /// A figure, if there is one.
            figure: Option<f64>,
        }
    }

    fn whole(text: &str) -> Result<Whole, String> {
        Whole::read(&serde_json::from_str(text).expect("JSON"))
    }

    #[test]
    fn what_is_written_is_read_back_and_quantities_are_added() {
        let text = r#"{"name": "a", "parts": {"x": {"count": 2, "number": 7}}, "figure": 0.5}"#;
        let mut own = whole(text).expect("well formed");
        assert_eq!(Whole::read(&own.write()), Ok(own.clone()));
        let other = r#"{"name": "b", "parts": {"x": {"count": 3, "number": 7}, "y": {}}}"#;
        own.add(&whole(other).expect("well formed")).expect("alike");
        let x = Part {
            count: 5,
            number: Same(7),
        };
        assert_eq!((own.name.as_str(), own.figure), ("a", Some(0.5)));
        assert_eq!((&own.parts["x"], own.parts.len()), (&x, 2));
    }

    #[test]
    fn faults_have_their_place() {
        let text = r#"{"parts": {"x": {"count": -1}}}"#;
        assert_eq!(
            whole(text),
            Err("parts.x.count: not a whole number".to_string())
        );
    }

    #[test]
    fn a_schema_names_each_field_and_defines_each_record_once() {
        let mut definitions = Definitions::new();
        let root = Whole::schema(&mut definitions);
        assert_eq!(root["$ref"], "#/$defs/Whole");
        let names: Vec<&String> = definitions.keys().collect();
        assert_eq!(names, ["Whole", "Part"]);
        let number = &definitions["Part"]["properties"]["number"];
        assert_eq!(number["description"], "Which one.");
        assert_eq!(number["type"], "integer");
    }
}
