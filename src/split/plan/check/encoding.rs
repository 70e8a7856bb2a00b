//! Encodings of the two databases: which texts are copied without a change.

use crate::agent::observed_side::ObservedSide;
use crate::catalog::split::Plan;
use crate::keys::scope::Scope;
use crate::split::finding::Finding;

/// Encodings in which every text has one form in UTF-8 that is converted back to the same text; all characters were
/// tried. Some characters of EUC_JP have a twin, so that two keys would become one.
const ONE_TO_ONE: [&str; 30] = [
    "UTF8",
    "LATIN1",
    "LATIN2",
    "LATIN3",
    "LATIN4",
    "LATIN5",
    "LATIN6",
    "LATIN7",
    "LATIN8",
    "LATIN9",
    "LATIN10",
    "ISO_8859_5",
    "ISO_8859_6",
    "ISO_8859_7",
    "ISO_8859_8",
    "KOI8R",
    "KOI8U",
    "WIN866",
    "WIN874",
    "WIN1250",
    "WIN1251",
    "WIN1252",
    "WIN1253",
    "WIN1254",
    "WIN1255",
    "WIN1256",
    "WIN1257",
    "WIN1258",
    "EUC_CN",
    "EUC_KR",
];

fn is_one_to_one(encoding: &str) -> bool {
    ONE_TO_ONE.contains(&encoding)
}

/// Compares both sides. Between databases of the same encoding texts are not converted.
pub fn of_both(source: &ObservedSide, target: &ObservedSide) -> Option<Finding> {
    let (from, to) = (&source.observation.encoding, &target.observation.encoding);
    let ok = from == to || is_one_to_one(from) && is_one_to_one(to);
    let detail = format!("the source is in {from}, the target in {to}: different texts may become the same");
    let hint = "Use a database of the source's encoding as the target.";
    (!ok).then(|| Finding::new("encodings", false, detail, hint))
}

/// Checks keys that are texts, in a database of another encoding than theirs.
pub fn of_keys(plan: &Plan, name: &str, encoding: &str) -> Option<Finding> {
    let problem = match (&plan.scope, encoding) {
        (_, "UTF8") => return None,
        (Scope::Ranges { .. }, _) => "it sorts texts in another order than keys",
        (Scope::Buckets { .. }, "SQL_ASCII") => {
            "its texts may be invalid in UTF-8, of which the hash is computed"
        }
        (Scope::Keys(keys), _) if !is_one_to_one(encoding) && !keys.iter().all(|key| key.is_ascii()) => {
            "a key with non-ASCII characters may be several of its texts"
        }
        (Scope::Buckets { .. } | Scope::Keys(_), _) => return None,
    };
    let hint = "Use a database of encoding UTF8 for the shard.";
    Some(Finding::new(name, false, format!("the database is in {encoding}: {problem}"), hint))
}
