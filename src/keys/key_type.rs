//! The types of keys, and the canonical text of a value that routing stores and compares.

use super::ordered::Ordered;
use crate::named_enum::named_enum;
use pgrx::datum::Uuid;
use pgrx::prelude::*;
use std::borrow::Cow;
use std::ffi::{CStr, CString};

/// The name of a type whose values cannot be keys.
#[derive(Debug)]
pub struct Unsupported(pub String);

named_enum! {
    /// The types whose values have a canonical text that no setting changes, by their names in SQL.
    pub enum KeyType {
        SmallInt = "smallint",
        Integer = "integer",
        BigInt = "bigint",
        Numeric = "numeric",
        Text = "text",
        VarChar = "character varying",
        Char = "character",
        Uuid = "uuid",
    }
}

impl KeyType {
    /// Whether each key of one type is written as the same key of the other.
    pub fn is_written_as(self, other: &str) -> bool {
        let alike: &[KeyType] = match self {
            KeyType::SmallInt | KeyType::Integer | KeyType::BigInt => {
                &[KeyType::SmallInt, KeyType::Integer, KeyType::BigInt]
            }
            KeyType::Text | KeyType::VarChar => &[KeyType::Text, KeyType::VarChar],
            KeyType::Numeric => &[KeyType::Numeric],
            KeyType::Char => &[KeyType::Char],
            KeyType::Uuid => &[KeyType::Uuid],
        };
        alike.iter().any(|alike| alike.as_str() == other)
    }

    pub fn from_catalog(name: &str) -> KeyType {
        KeyType::from_name(name).unwrap_or_else(|| error!("unknown key type \"{name}\" in the catalog"))
    }

    /// Returns the type of an oid. A domain counts as its base type, an enum as text.
    pub fn from_oid(oid: pg_sys::Oid) -> Result<KeyType, Unsupported> {
        // SAFETY: this is a look-up in the system cache, which returns zero for an unknown type.
        if unsafe { pg_sys::get_typtype(oid) } == 0 {
            return Err(Unsupported(format!("with oid {}", oid.to_u32())));
        }
        // SAFETY: these are look-ups in the system cache, of a type that exists.
        let (base, is_enum) = unsafe {
            let base = pg_sys::getBaseType(oid);
            (base, pg_sys::get_typtype(base) == pg_sys::TYPTYPE_ENUM as std::ffi::c_char)
        };
        match base {
            pg_sys::INT2OID => Ok(KeyType::SmallInt),
            pg_sys::INT4OID => Ok(KeyType::Integer),
            pg_sys::INT8OID => Ok(KeyType::BigInt),
            pg_sys::NUMERICOID => Ok(KeyType::Numeric),
            pg_sys::TEXTOID => Ok(KeyType::Text),
            pg_sys::VARCHAROID => Ok(KeyType::VarChar),
            pg_sys::BPCHAROID => Ok(KeyType::Char),
            pg_sys::UUIDOID => Ok(KeyType::Uuid),
            _ if is_enum => Ok(KeyType::Text),
            _ => Err(Unsupported(type_name(oid))),
        }
    }

    /// Whether a column of the other type has the same text for the same key.
    pub fn takes(self, column: KeyType, is_directory: bool) -> bool {
        self.family() == column.family() && self.tells_apart(column == KeyType::Char, is_directory)
    }

    /// Whether no two values of a column can become one key unnoticed, nor two keys one value: blanks at the end count
    /// in a text, but not in a `char`. In a directory, a key that the column writes differently has an entry of its
    /// own, or is refused; hashes and ranges have a place for every text.
    pub fn tells_apart(self, is_padded: bool, is_directory: bool) -> bool {
        match self {
            KeyType::Char => is_padded,
            _ => is_directory || !is_padded,
        }
    }

    pub fn is_text(self) -> bool {
        self.family() == KeyFamily::Text
    }

    fn family(self) -> KeyFamily {
        match self {
            KeyType::SmallInt | KeyType::Integer | KeyType::BigInt | KeyType::Numeric => KeyFamily::Number,
            KeyType::Text | KeyType::VarChar | KeyType::Char => KeyFamily::Text,
            KeyType::Uuid => KeyFamily::Uuid,
        }
    }

    /// Returns how keys of a hash or range keyspace are hashed and ordered, or None if they cannot be.
    pub fn ordered(self) -> Option<Ordered> {
        match self {
            KeyType::SmallInt | KeyType::Integer | KeyType::BigInt => Some(Ordered::BigInt),
            KeyType::Text | KeyType::VarChar | KeyType::Char => Some(Ordered::Text),
            KeyType::Uuid => Some(Ordered::Uuid),
            KeyType::Numeric => None,
        }
    }

    /// Returns the canonical text of a key. The type's input function raises an error (22P02, 22003) for other texts.
    pub fn canonical<'a>(self, key: &'a str) -> Cow<'a, str> {
        match self {
            KeyType::Text | KeyType::VarChar => Cow::Borrowed(key),
            KeyType::Char => Cow::Borrowed(key.trim_end_matches(' ')),
            KeyType::SmallInt => read::<i16>(pg_sys::int2in, key).to_string().into(),
            KeyType::Integer => read::<i32>(pg_sys::int4in, key).to_string().into(),
            KeyType::BigInt => read::<i64>(pg_sys::int8in, key).to_string().into(),
            KeyType::Uuid => read::<Uuid>(pg_sys::uuid_in, key).to_string().into(),
            KeyType::Numeric => trim_scale(read::<AnyNumeric>(pg_sys::numeric_in, key).to_string()).into(),
        }
    }

    /// Returns the canonical text of a value as its column writes it, whatever the column's type is, without raising
    /// an error. Returns None if it is no key of this type.
    pub fn of_value(self, value: &str) -> Option<Cow<'_, str>> {
        let integer = || decimal(value)?.parse::<i64>().ok();
        match self {
            KeyType::Text | KeyType::VarChar | KeyType::Char => Some(self.canonical(value)),
            KeyType::SmallInt => integer().filter(|number| i16::try_from(*number).is_ok()).map(text),
            KeyType::Integer => integer().filter(|number| i32::try_from(*number).is_ok()).map(text),
            KeyType::BigInt => integer().map(text),
            KeyType::Numeric => match value {
                "NaN" | "Infinity" | "-Infinity" => Some(value.into()),
                _ => decimal(value).map(Into::into),
            },
            KeyType::Uuid => {
                let bare = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(value);
                let digits = bare.replace('-', "");
                let is_one = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                is_one.then(|| self.canonical(&digits).into_owned().into())
            }
        }
    }
}

fn text(number: i64) -> Cow<'static, str> {
    number.to_string().into()
}

#[derive(PartialEq, Eq)]
enum KeyFamily {
    Number,
    Text,
    Uuid,
}

/// Removes zeros at the end: 1.50 and 1.5 are the same number.
fn trim_scale(number: String) -> String {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.').to_owned() } else { number }
}

/// Returns a number in its shortest form, so that `+007.50` becomes `7.5`, or None if it is not a number.
fn decimal(value: &str) -> Option<String> {
    let value = value.trim_matches(|c: char| c.is_ascii_whitespace());
    let (sign, digits) = match value.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", value.strip_prefix('+').unwrap_or(value)),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !is_digits(whole) || !is_digits(part) {
        return None;
    }
    let (whole, part) = (whole.trim_start_matches('0'), part.trim_end_matches('0'));
    Some(match (whole, part) {
        ("", "") => "0".to_owned(),
        ("", part) => format!("{sign}0.{part}"),
        (whole, "") => format!("{sign}{whole}"),
        (whole, part) => format!("{sign}{whole}.{part}"),
    })
}

/// Reads a value with its type's input function.
fn read<T: FromDatum>(input: unsafe fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum, key: &str) -> T {
    let text = CString::new(key).unwrap_or_default();
    let no_modifier = -1;
    // SAFETY: an input function takes (cstring, oid, integer) and returns its type, not NULL; its errors unwind like
    // all errors of the server.
    let value = unsafe {
        pgrx::direct_function_call::<T>(
            input,
            &[text.as_c_str().into_datum(), pg_sys::InvalidOid.into_datum(), no_modifier.into_datum()],
        )
    };
    match value {
        Some(value) => value,
        None => error!("input function returned NULL"),
    }
}

fn type_name(oid: pg_sys::Oid) -> String {
    // SAFETY: format_type_be returns a NUL-terminated string in the current context.
    unsafe { CStr::from_ptr(pg_sys::format_type_be(oid)).to_string_lossy().into_owned() }
}

#[cfg(test)]
mod tests {
    use super::decimal;
    use crate::properties::hold;
    use proptest::prelude::*;

    #[test]
    fn a_number_has_one_form_whatever_its_column_writes() {
        for (value, key) in [
            ("7", Some("7")),
            (" +007.00", Some("7")),
            ("-0.0", Some("0")),
            ("-32768", Some("-32768")),
            ("8.50", Some("8.5")),
            (".50", Some("0.5")),
            ("", None),
            (".", None),
            ("-", None),
            ("--1", None),
            ("abc", None),
            ("1e3", None),
        ] {
            assert_eq!(decimal(value).as_deref(), key, "{value}");
        }
    }

    #[test]
    fn every_number_has_one_form() {
        let number = prop_oneof![-1..=1_i64, any::<i64>()];
        let written = (number, 0..4_usize, proptest::option::of("0{0,3}"), "[ \t]{0,2}", "[-+]?");
        hold(written, |(number, zeros, part, blanks, sign)| {
            // Zero has no sign.
            let sign = match number {
                0 => sign.as_str(),
                ..0 => "-",
                1.. => sign.trim_start_matches('-'),
            };
            let part = part.map(|part| format!(".{part}")).unwrap_or_default();
            let value = format!("{blanks}{sign}{}{}{part}{blanks}", "0".repeat(zeros), number.unsigned_abs());
            prop_assert_eq!(decimal(&value), Some(number.to_string()));
            Ok(())
        });
        hold("[-+ ]{0,2}[0-9]{0,4}[.e]?[0-9]{0,4}", |value| {
            // The canonical form of a number is its own canonical form.
            if let Some(form) = decimal(&value) {
                prop_assert_eq!(decimal(&form), Some(form));
            }
            Ok(())
        });
    }
}
