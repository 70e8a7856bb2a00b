//! What each type can be used for in a split: a list of what tests have shown to be right. A type that is not in it is
//! refused before anything moves.

use super::shape::{Column, TypePart};

/// How values are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Travel {
    /// In their binary form, which is the same on every server and version.
    Binary,
    /// In their text form, which the sessions' settings make the same everywhere.
    Text,
    /// Not at all: they have no form that can be read back.
    Never,
}

/// How a type can be used in a primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFitness {
    /// Equal values have equal bytes.
    Plain,
    /// The type has an equality of its own.
    Own,
    /// Its values cannot be in a primary key.
    No,
}

/// Values that routing treats as the same key, whatever the columns' types are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeFamily {
    Integer,
    Numeric,
    Text,
    Uuid,
    /// An enum by its type: labels are not compared with those of another type.
    Enum(String),
}

impl TypeFamily {
    /// Returns the type that a redirect's table and its look-ups compare keys of the family as.
    pub fn compared_as(&self) -> &'static str {
        match self {
            TypeFamily::Integer | TypeFamily::Numeric => "pg_catalog.numeric",
            TypeFamily::Text | TypeFamily::Enum(_) => "pg_catalog.text",
            TypeFamily::Uuid => "pg_catalog.uuid",
        }
    }
}

#[derive(Debug)]
pub struct KnownTypes {
    pub name: &'static str,
    pub travel: Travel,
    pub key: KeyFitness,
    pub note: &'static str,
    /// The values have a meaning only on the server that assigned them.
    pub of_one_server: bool,
}

const fn known(name: &'static str, travel: Travel, key: KeyFitness) -> KnownTypes {
    noted(name, travel, key, "")
}

const fn noted(name: &'static str, travel: Travel, key: KeyFitness, note: &'static str) -> KnownTypes {
    KnownTypes { name, travel, key, note, of_one_server: false }
}

const fn of_one_server(name: &'static str, key: KeyFitness, note: &'static str) -> KnownTypes {
    KnownTypes { name, travel: Travel::Text, key, note, of_one_server: true }
}

const OF_CATALOG: &str =
    "names or numbers of the source's catalog, copied as they are: a remark of the check";
const OF_TRANSACTIONS: &str =
    "the source's transactions, rows or log, copied as they are: a remark of the check";

/// The server's own types, written without length and precision.
pub const BUILTIN: &[KnownTypes] = &[
    known("smallint", Travel::Binary, KeyFitness::Plain),
    known("integer", Travel::Binary, KeyFitness::Plain),
    known("bigint", Travel::Binary, KeyFitness::Plain),
    noted("numeric", Travel::Binary, KeyFitness::Own, "PostgreSQL 13 has no infinity and refuses it"),
    known("real", Travel::Binary, KeyFitness::Own),
    known("double precision", Travel::Binary, KeyFitness::Own),
    known("boolean", Travel::Binary, KeyFitness::Plain),
    known("text", Travel::Binary, KeyFitness::Plain),
    known("character varying", Travel::Binary, KeyFitness::Plain),
    known("character", Travel::Binary, KeyFitness::Own),
    noted(
        "\"char\"",
        Travel::Text,
        KeyFitness::Plain,
        "not between versions before 16 and from 16, which write it differently",
    ),
    known("name", Travel::Text, KeyFitness::Own),
    known("bytea", Travel::Binary, KeyFitness::Plain),
    known("uuid", Travel::Binary, KeyFitness::Plain),
    known("date", Travel::Binary, KeyFitness::Plain),
    known("time without time zone", Travel::Binary, KeyFitness::Plain),
    known("time with time zone", Travel::Binary, KeyFitness::Own),
    known("timestamp without time zone", Travel::Binary, KeyFitness::Plain),
    known("timestamp with time zone", Travel::Binary, KeyFitness::Plain),
    noted("interval", Travel::Text, KeyFitness::Own, "versions before 17 have no infinity and refuse it"),
    known("json", Travel::Binary, KeyFitness::No),
    known("jsonb", Travel::Binary, KeyFitness::Own),
    known("jsonpath", Travel::Text, KeyFitness::No),
    known("xml", Travel::Text, KeyFitness::No),
    known("inet", Travel::Binary, KeyFitness::Own),
    known("cidr", Travel::Binary, KeyFitness::Own),
    known("macaddr", Travel::Binary, KeyFitness::Own),
    known("macaddr8", Travel::Text, KeyFitness::Own),
    known("bit", Travel::Text, KeyFitness::Own),
    known("bit varying", Travel::Text, KeyFitness::Own),
    noted("money", Travel::Text, KeyFitness::Own, "where lc_monetary is the same on both servers"),
    known("point", Travel::Text, KeyFitness::No),
    known("line", Travel::Text, KeyFitness::No),
    known("lseg", Travel::Text, KeyFitness::No),
    known("box", Travel::Text, KeyFitness::No),
    known("path", Travel::Text, KeyFitness::No),
    known("polygon", Travel::Text, KeyFitness::No),
    known("circle", Travel::Text, KeyFitness::No),
    known("tsvector", Travel::Text, KeyFitness::Own),
    known("tsquery", Travel::Text, KeyFitness::Own),
    known("int4range", Travel::Text, KeyFitness::Own),
    known("int8range", Travel::Text, KeyFitness::Own),
    known("numrange", Travel::Text, KeyFitness::Own),
    known("tsrange", Travel::Text, KeyFitness::Own),
    known("tstzrange", Travel::Text, KeyFitness::Own),
    known("daterange", Travel::Text, KeyFitness::Own),
    known("int4multirange", Travel::Text, KeyFitness::Own),
    known("int8multirange", Travel::Text, KeyFitness::Own),
    known("nummultirange", Travel::Text, KeyFitness::Own),
    known("tsmultirange", Travel::Text, KeyFitness::Own),
    known("tstzmultirange", Travel::Text, KeyFitness::Own),
    known("datemultirange", Travel::Text, KeyFitness::Own),
    of_one_server("pg_lsn", KeyFitness::Own, OF_TRANSACTIONS),
    of_one_server("pg_snapshot", KeyFitness::No, OF_TRANSACTIONS),
    of_one_server("txid_snapshot", KeyFitness::No, OF_TRANSACTIONS),
    of_one_server("xid", KeyFitness::No, OF_TRANSACTIONS),
    of_one_server("xid8", KeyFitness::Own, OF_TRANSACTIONS),
    of_one_server("cid", KeyFitness::No, OF_TRANSACTIONS),
    of_one_server("tid", KeyFitness::Own, OF_TRANSACTIONS),
    known("refcursor", Travel::Text, KeyFitness::No),
    of_one_server("oid", KeyFitness::Plain, OF_CATALOG),
    of_one_server("regclass", KeyFitness::Own, OF_CATALOG),
    of_one_server("regcollation", KeyFitness::Own, OF_CATALOG),
    of_one_server("regconfig", KeyFitness::Own, OF_CATALOG),
    of_one_server("regdictionary", KeyFitness::Own, OF_CATALOG),
    of_one_server("regnamespace", KeyFitness::Own, OF_CATALOG),
    of_one_server("regoper", KeyFitness::Own, OF_CATALOG),
    of_one_server("regoperator", KeyFitness::Own, OF_CATALOG),
    of_one_server("regproc", KeyFitness::Own, OF_CATALOG),
    of_one_server("regprocedure", KeyFitness::Own, OF_CATALOG),
    of_one_server("regrole", KeyFitness::Own, OF_CATALOG),
    of_one_server("regtype", KeyFitness::Own, OF_CATALOG),
    noted("aclitem", Travel::Never, KeyFitness::No, "names roles, which may differ on the target"),
    noted("gtsvector", Travel::Never, KeyFitness::No, "cannot be read back"),
    noted("pg_brin_bloom_summary", Travel::Never, KeyFitness::No, "cannot be read back"),
    noted("pg_brin_minmax_multi_summary", Travel::Never, KeyFitness::No, "cannot be read back"),
    noted("pg_dependencies", Travel::Never, KeyFitness::No, "cannot be read back"),
    noted("pg_mcv_list", Travel::Never, KeyFitness::No, "cannot be read back"),
    noted("pg_ndistinct", Travel::Never, KeyFitness::No, "cannot be read back"),
    noted("pg_node_tree", Travel::Never, KeyFitness::No, "cannot be read back"),
];

/// Types of extensions: (extension, type). All of them are copied as text.
pub const EXTENSIONS: &[(&str, &str, KeyFitness)] = &[
    ("citext", "citext", KeyFitness::Own),
    ("cube", "cube", KeyFitness::Own),
    ("hstore", "hstore", KeyFitness::Own),
    ("intarray", "query_int", KeyFitness::No),
    ("isn", "ean13", KeyFitness::Own),
    ("isn", "isbn13", KeyFitness::Own),
    ("isn", "ismn13", KeyFitness::Own),
    ("isn", "issn13", KeyFitness::Own),
    ("isn", "isbn", KeyFitness::Own),
    ("isn", "ismn", KeyFitness::Own),
    ("isn", "issn", KeyFitness::Own),
    ("isn", "upc", KeyFitness::Own),
    ("lo", "lo", KeyFitness::Plain),
    ("ltree", "ltree", KeyFitness::Own),
    ("ltree", "lquery", KeyFitness::No),
    ("ltree", "ltxtquery", KeyFitness::No),
    ("seg", "seg", KeyFitness::Own),
];

fn builtin(name: &str) -> Option<&'static KnownTypes> {
    BUILTIN.iter().find(|known| known.name == name)
}

impl TypePart {
    /// Returns how the type's values are copied, or None if the type is unknown.
    pub fn travel(&self) -> Option<Travel> {
        match (&self.extension, self.kind.as_str()) {
            (Some(extension), _) => {
                let is_it = |known: &&(&str, &str, KeyFitness)| known.0 == extension && known.1 == self.name;
                EXTENSIONS.iter().find(is_it).map(|_| Travel::Text)
            }
            (None, "e") => Some(Travel::Text),
            (None, _) if self.builtin => builtin(&self.name).map(|known| known.travel),
            (None, _) => None,
        }
    }

    /// Returns what is special about a type of the server.
    pub fn note(&self) -> Option<&'static str> {
        let known = builtin(&self.name).filter(|_| self.builtin && self.extension.is_none())?;
        (!known.note.is_empty()).then_some(known.note)
    }

    /// Whether its values have a meaning on one server only.
    pub fn is_of_one_server(&self) -> bool {
        match &self.extension {
            // This is a domain over oid.
            Some(extension) => extension == "lo",
            None => self.builtin && builtin(&self.name).is_some_and(|known| known.of_one_server),
        }
    }

    fn key(&self) -> Option<KeyFitness> {
        match (&self.extension, self.kind.as_str()) {
            (Some(extension), _) => {
                EXTENSIONS.iter().find(|k| k.0 == extension && k.1 == self.name).map(|known| known.2)
            }
            (None, "e") => Some(KeyFitness::Own),
            (None, _) if self.builtin => builtin(&self.name).map(|known| known.key),
            (None, _) => None,
        }
    }
}

impl Column {
    /// Returns the part of the type that cannot be read back on another server, if there is one.
    pub fn cannot_travel(&self) -> Option<&TypePart> {
        self.parts.iter().find(|part| !matches!(part.travel(), Some(Travel::Binary | Travel::Text)))
    }

    /// Returns the part whose values have a meaning on one server only, if there is one, also within an array, a range
    /// or a composite.
    pub fn of_one_server(&self) -> Option<&TypePart> {
        self.parts.iter().find(|part| part.is_of_one_server())
    }

    /// Whether its binary form is the same on every server; this holds for arrays, too.
    pub fn is_binary(&self) -> bool {
        self.builtin
            && !self.parts.is_empty()
            && self.parts.iter().all(|p| p.travel() == Some(Travel::Binary))
    }

    /// Returns the part that prevents a primary key whose rows can be found again, if there is one.
    pub fn cannot_be_key(&self) -> Option<&TypePart> {
        self.parts.iter().find(|part| !matches!(part.key(), Some(KeyFitness::Plain | KeyFitness::Own)))
    }

    /// Whether equal values have equal bytes, and are of a type with one form.
    pub fn is_plain_key(&self) -> bool {
        let name = if self.base == "bpchar" { "character" } else { self.base.as_str() };
        self.equality.is_none() && builtin(name).is_some_and(|known| known.key == KeyFitness::Plain)
    }

    /// Whether trailing blanks of its values have no meaning.
    pub fn is_padded(&self) -> bool {
        !self.is_enum && matches!(self.base.as_str(), "character" | "bpchar")
    }

    /// Returns the family of a shard-by column's type, or None if the type is not permitted there.
    pub fn family(&self) -> Option<TypeFamily> {
        if self.is_enum {
            return Some(TypeFamily::Enum(self.base.clone()));
        }
        match self.base.as_str() {
            "smallint" | "integer" | "bigint" => Some(TypeFamily::Integer),
            "numeric" => Some(TypeFamily::Numeric),
            "text" | "character varying" | "character" | "bpchar" => Some(TypeFamily::Text),
            "uuid" => Some(TypeFamily::Uuid),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn travels(travel: Travel) -> &'static str {
        match travel {
            Travel::Binary => "binary",
            Travel::Text => "text",
            Travel::Never => "no",
        }
    }

    fn key(key: KeyFitness) -> &'static str {
        match key {
            KeyFitness::Plain => "by bytes",
            KeyFitness::Own => "by its own equality",
            KeyFitness::No => "no",
        }
    }

    fn shard_by(name: &str) -> &'static str {
        let column = Column { base: name.into(), ..Column::default() };
        match column.family() {
            Some(TypeFamily::Integer | TypeFamily::Text | TypeFamily::Uuid) => "directory, hash, range",
            Some(TypeFamily::Numeric) => "directory",
            Some(TypeFamily::Enum(_)) | None => "no",
        }
    }

    /// Returns the two tables of the page.
    fn tables() -> [String; 2] {
        let mut builtin = "| Type | Travels | Key | Shard by | Note |\n|---|---|---|---|---|\n".to_owned();
        for known in BUILTIN {
            builtin += &format!(
                "| `{}` | {} | {} | {} | {} |\n",
                known.name,
                travels(known.travel),
                key(known.key),
                shard_by(known.name),
                known.note
            );
        }
        let mut extensions = "| Type | Travels | Key | Extension |\n|---|---|---|---|\n".to_owned();
        for (extension, name, role) in EXTENSIONS {
            extensions += &format!("| `{name}` | text | {} | {extension} |\n", key(*role));
        }
        [builtin, extensions]
    }

    #[test]
    fn the_documentation_has_the_tables() {
        let page = include_str!("../../docs/reference/types.md");
        for table in tables() {
            assert!(page.contains(&format!("\n\n{table}\n")), "docs/reference/types.md is to have:\n{table}");
        }
    }
}
