//! Selects the conditions of a query that shards check themselves, so that rows stay there. All of them are checked
//! here again: a shard may return a row too many, and never one too few. So a condition is sent only if a shard cannot
//! see it otherwise than this server: operators built into the server on built-in types, and for texts only equality.

use pgrx::{PgList, pg_sys};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;

/// SQL for the shards, in pieces with values between them that are known when the query runs: one value less than
/// there are pieces.
pub struct ConditionWords {
    pub texts: Vec<String>,
    pub values: Vec<*mut pg_sys::Node>,
}

impl ConditionWords {
    fn text(text: impl Into<String>) -> ConditionWords {
        ConditionWords { texts: vec![text.into()], values: Vec::new() }
    }

    fn value(value: *mut pg_sys::Node) -> ConditionWords {
        ConditionWords { texts: vec![String::new(), String::new()], values: vec![value] }
    }

    pub fn then(mut self, next: ConditionWords) -> ConditionWords {
        let mut texts = next.texts.into_iter();
        if let (Some(last), Some(first)) = (self.texts.last_mut(), texts.next()) {
            last.push_str(&first);
        }
        self.texts.extend(texts);
        self.values.extend(next.values);
        self
    }

    pub fn joined(all: Vec<ConditionWords>, between: &str) -> ConditionWords {
        let mut all = all.into_iter();
        let first = all.next().unwrap_or_else(|| ConditionWords::text(""));
        all.fold(first, |words, next| words.then(ConditionWords::text(between)).then(next))
    }
}

/// A condition that a column has a value, or one of a list.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct KeyCondition {
    pub column: i16,
    /// The index of the value.
    pub value: usize,
    pub is_list: bool,
}

/// A condition as shards check it, and what it requires of one column alone.
pub struct ImportCondition {
    pub words: ConditionWords,
    /// The column has one of these values; it is the only value in `words`.
    pub key: Option<KeyCondition>,
}

/// Recognizes the table's columns in a query.
pub struct QueryColumns<'a> {
    pub relation: i32,
    /// Returns the name of a column by its number, as it is sent to shards.
    pub name: &'a dyn Fn(i16) -> Option<String>,
}

/// A column of the table, its number and its type.
struct ConditionColumn {
    words: String,
    number: i16,
    kind: pg_sys::Oid,
}

/// The greatest depth of nested conditions that are sent: the stack of a shard is not known, and that of this process
/// is limited too.
const DEEPEST: u32 = 32;

const NUMBERS: [pg_sys::Oid; 3] = [pg_sys::INT2OID, pg_sys::INT4OID, pg_sys::INT8OID];
const TEXTS: [pg_sys::Oid; 2] = [pg_sys::TEXTOID, pg_sys::VARCHAROID];
/// Types whose values are the same on every server, and are ordered alike.
const PLAIN: [pg_sys::Oid; 6] = [
    pg_sys::BOOLOID,
    pg_sys::NUMERICOID,
    pg_sys::UUIDOID,
    pg_sys::DATEOID,
    pg_sys::TIMESTAMPOID,
    pg_sys::TIMESTAMPTZOID,
];
/// The arrays of all these types.
const ARRAYS: [pg_sys::Oid; 11] = [
    pg_sys::INT2ARRAYOID,
    pg_sys::INT4ARRAYOID,
    pg_sys::INT8ARRAYOID,
    pg_sys::TEXTARRAYOID,
    pg_sys::VARCHARARRAYOID,
    pg_sys::BOOLARRAYOID,
    pg_sys::NUMERICARRAYOID,
    pg_sys::UUIDARRAYOID,
    pg_sys::DATEARRAYOID,
    pg_sys::TIMESTAMPARRAYOID,
    pg_sys::TIMESTAMPTZARRAYOID,
];

/// Whether a type's values are read alike with all settings.
pub fn is_plain(kind: pg_sys::Oid) -> bool {
    let others = [pg_sys::FLOAT4OID, pg_sys::FLOAT8OID, pg_sys::BYTEAOID, pg_sys::JSONOID, pg_sys::JSONBOID];
    NUMBERS.contains(&kind) || TEXTS.contains(&kind) || PLAIN.contains(&kind) || others.contains(&kind)
}

/// Whether values of the two types are compared alike everywhere.
fn is_comparable(one: pg_sys::Oid, other: pg_sys::Oid) -> bool {
    NUMBERS.contains(&one) && NUMBERS.contains(&other)
        || TEXTS.contains(&one) && TEXTS.contains(&other)
        || one == other && PLAIN.contains(&one)
}

/// # Safety
/// The node is NULL, or part of a plan that is being made.
unsafe fn is_a(node: *mut pg_sys::Node, tag: pg_sys::NodeTag) -> bool {
    // SAFETY: the caller keeps the promise above.
    !node.is_null() && unsafe { (*node).type_ } == tag
}

impl QueryColumns<'_> {
    /// Returns None if the condition is not sent to shards.
    ///
    /// # Safety
    /// The node is a condition of a query that is being planned.
    pub unsafe fn condition(&self, node: *mut pg_sys::Node) -> Option<ImportCondition> {
        // SAFETY: the caller keeps the promise above.
        unsafe { self.within(node, DEEPEST) }
    }

    /// Converts a condition that contains at most `depth` levels of others.
    unsafe fn within(&self, node: *mut pg_sys::Node, depth: u32) -> Option<ImportCondition> {
        // SAFETY: the promise of `condition` holds; the tag gives a node's type.
        unsafe {
            let plain = |words: ConditionWords| ImportCondition { words, key: None };
            match (*node).type_ {
                pg_sys::NodeTag::T_OpExpr => self.comparison(node.cast()),
                pg_sys::NodeTag::T_ScalarArrayOpExpr => self.one_of(node.cast()),
                pg_sys::NodeTag::T_NullTest => self.null_test(node.cast()).map(plain),
                pg_sys::NodeTag::T_BoolExpr => self.all_of(node.cast(), depth.checked_sub(1)?).map(plain),
                pg_sys::NodeTag::T_Var => self.truth(node).map(plain),
                _ => None,
            }
        }
    }

    unsafe fn comparison(&self, node: *mut pg_sys::OpExpr) -> Option<ImportCondition> {
        // SAFETY: the promise of `condition` holds.
        unsafe {
            let args = PgList::<pg_sys::Node>::from_pg((*node).args);
            let (left, right) = (args.get_ptr(0)?, args.get_ptr(1).filter(|_| args.len() == 2)?);
            let operator = own_operator((*node).opno)?;
            let (column, value, is_turned) = match (self.column(left), self.column(right)) {
                (Some(column), None) => (column, right, false),
                (None, Some(column)) => (column, left, true),
                _ => return None,
            };
            let kind = pg_sys::exprType(value);
            if !is_comparable(column.kind, kind) || !is_value(value) {
                return None;
            }
            if TEXTS.contains(&column.kind) && (operator != "=" || !is_by_bytes((*node).inputcollid)) {
                return None;
            }
            let key =
                (operator == "=").then_some(KeyCondition { column: column.number, value: 0, is_list: false });
            let operator = format!(" OPERATOR(pg_catalog.{operator}) ");
            let (column, value) = (ConditionWords::text(column.words), ConditionWords::value(value));
            let words = if is_turned {
                value.then(ConditionWords::text(operator)).then(column)
            } else {
                column.then(ConditionWords::text(operator)).then(value)
            };
            Some(ImportCondition { words, key })
        }
    }

    unsafe fn one_of(&self, node: *mut pg_sys::ScalarArrayOpExpr) -> Option<ImportCondition> {
        // SAFETY: the promise of `condition` holds.
        unsafe {
            let args = PgList::<pg_sys::Node>::from_pg((*node).args);
            let (column, list) = (self.column(args.get_ptr(0)?)?, args.get_ptr(1)?);
            let of = pg_sys::get_element_type(pg_sys::exprType(list));
            let fits = (*node).useOr && own_operator((*node).opno)? == "=" && is_comparable(column.kind, of);
            if !fits || !is_value(list) || TEXTS.contains(&of) && !is_by_bytes((*node).inputcollid) {
                return None;
            }
            let words = ConditionWords::text(format!("{} OPERATOR(pg_catalog.=) ANY (", column.words));
            Some(ImportCondition {
                words: words.then(ConditionWords::value(list)).then(ConditionWords::text(")")),
                key: Some(KeyCondition { column: column.number, value: 0, is_list: true }),
            })
        }
    }

    unsafe fn null_test(&self, node: *mut pg_sys::NullTest) -> Option<ConditionWords> {
        // SAFETY: the promise of `condition` holds.
        unsafe {
            let column = self.column((*node).arg.cast()).filter(|_| !(*node).argisrow)?;
            let is = match (*node).nulltesttype {
                pg_sys::NullTestType::IS_NULL => "IS NULL",
                _ => "IS NOT NULL",
            };
            Some(ConditionWords::text(format!("{} {is}", column.words)))
        }
    }

    /// Converts AND and OR, and NOT of a single column: NOT would turn a row too many into one too few.
    unsafe fn all_of(&self, node: *mut pg_sys::BoolExpr, depth: u32) -> Option<ConditionWords> {
        // SAFETY: the promise of `condition` holds.
        unsafe {
            let args = PgList::<pg_sys::Node>::from_pg((*node).args);
            let between = match (*node).boolop {
                pg_sys::BoolExprType::AND_EXPR => " AND ",
                pg_sys::BoolExprType::OR_EXPR => " OR ",
                _ => return Some(ConditionWords::text("NOT ").then(self.truth(args.get_ptr(0)?)?)),
            };
            let parts = args.iter_ptr().map(|arg| Some(self.within(arg, depth)?.words));
            let parts: Vec<ConditionWords> = parts.collect::<Option<_>>()?;
            Some(
                ConditionWords::text("(")
                    .then(ConditionWords::joined(parts, between))
                    .then(ConditionWords::text(")")),
            )
        }
    }

    /// Converts a boolean column that is a condition itself.
    unsafe fn truth(&self, node: *mut pg_sys::Node) -> Option<ConditionWords> {
        // SAFETY: the promise of `condition` holds.
        let column = unsafe { self.column(node) }?;
        (column.kind == pg_sys::BOOLOID).then(|| ConditionWords::text(column.words))
    }

    /// Returns the column that a node is. A varchar is compared as a text.
    unsafe fn column(&self, node: *mut pg_sys::Node) -> Option<ConditionColumn> {
        // SAFETY: the promise of `condition` holds.
        unsafe {
            if is_a(node, pg_sys::NodeTag::T_RelabelType) {
                let relabelled = node.cast::<pg_sys::RelabelType>();
                let column = self.column((*relabelled).arg.cast())?;
                let fits = TEXTS.contains(&column.kind) && (*relabelled).resulttype == pg_sys::TEXTOID;
                return fits.then_some(column);
            }
            if !is_a(node, pg_sys::NodeTag::T_Var) {
                return None;
            }
            let var = node.cast::<pg_sys::Var>();
            let is_own = i64::from((*var).varno) == i64::from(self.relation) && (*var).varlevelsup == 0;
            let name = (self.name)((*var).varattno).filter(|_| is_own && (*var).varattno > 0)?;
            let kind = (*var).vartype;
            // A value that arrived as a text is seen as a text on the shard: an enum has no `=` with texts there, and
            // a row of NULLs is NULL. For a column of type text, the cast changes nothing.
            let words = if TEXTS.contains(&kind) { format!("{name}::pg_catalog.text") } else { name };
            Some(ConditionColumn { words, number: (*var).varattno, kind })
        }
    }
}

/// Whether the node's value is known when the query runs, and the same for all its rows.
unsafe fn is_value(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the promise of `condition` holds.
    unsafe {
        let kind = pg_sys::exprType(node);
        let is_known = NUMBERS.contains(&kind)
            || TEXTS.contains(&kind)
            || PLAIN.contains(&kind)
            || ARRAYS.contains(&kind);
        is_known
            && !pg_sys::contain_var_clause(node)
            && !pg_sys::contain_volatile_functions(node)
            && !pg_sys::contain_subplans(node)
    }
}

/// Returns the operator's name if it is a comparison that is built into the server.
unsafe fn own_operator(number: pg_sys::Oid) -> Option<&'static str> {
    if number.to_u32() >= pg_sys::FirstNormalObjectId {
        return None;
    }
    // SAFETY: the promise of `condition` holds; the name ends with NUL.
    let name = unsafe {
        let name = pg_sys::get_opname(number);
        if name.is_null() {
            return None;
        }
        CStr::from_ptr(name)
    };
    ["=", "<", "<=", ">", ">=", "<>"].into_iter().find(|known| known.as_bytes() == name.to_bytes())
}

/// Whether two texts are equal by this collation exactly if their bytes are.
unsafe fn is_by_bytes(collation: pg_sys::Oid) -> bool {
    // SAFETY: the promise of `condition` holds.
    collation != pg_sys::Oid::INVALID && unsafe { pg_sys::get_collation_isdeterministic(collation) }
}
