//! The rows that a key must have, according to the answers that its client got.

use std::collections::BTreeMap;

/// The values of rows by id. Both tables have the same.
pub type Rows = BTreeMap<i32, String>;

/// A change of one row: its value afterwards, or `None` if it is deleted.
pub type Change = (i32, Option<String>);

/// The rows of a key, and the changes whose COMMIT had no answer.
#[derive(Clone, Debug, Default)]
pub struct ExpectedRows {
    pub rows: Rows,
    doubt: Option<Vec<Change>>,
}

fn changed(rows: &Rows, changes: &[Change]) -> Rows {
    let mut rows = rows.clone();
    for (id, after) in changes {
        match after {
            Some(value) => rows.insert(*id, value.clone()),
            None => rows.remove(id),
        };
    }
    rows
}

impl ExpectedRows {
    pub fn acknowledged(&mut self, changes: &[Change]) {
        self.rows = changed(&self.rows, changes);
    }

    /// Records changes whose answer was lost. Until the next `settle`, they may have happened or not.
    pub fn in_doubt(&mut self, changes: Vec<Change>) {
        self.doubt = Some(changes);
    }

    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Compares with the rows that were found. If the last change was in doubt, this settles it. Returns the
    /// difference in words.
    pub fn settle(&mut self, found: &Rows) -> Option<String> {
        if *found == self.rows {
            self.doubt = None;
            return None;
        }
        if let Some(doubt) = &self.doubt
            && changed(&self.rows, doubt) == *found
        {
            self.rows = found.clone();
            self.doubt = None;
            return None;
        }
        Some(difference(&self.rows, found, self.doubt.as_deref()))
    }
}

fn difference(known: &Rows, found: &Rows, doubt: Option<&[Change]>) -> String {
    let mut ids: Vec<i32> = known.keys().chain(found.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| known.get(id) != found.get(id));
    let shown = ids.iter().take(5).map(|id| {
        let (known, found) = (known.get(id), found.get(id));
        format!("row {id}: acknowledged {known:?}, found {found:?}")
    });
    let doubt = doubt.map(|changes| format!("; in doubt: {changes:?}")).unwrap_or_default();
    format!("{} rows differ: {}{doubt}", ids.len(), shown.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> ExpectedRows {
        let mut book = ExpectedRows::default();
        book.acknowledged(&[(1, Some("a".into())), (2, Some("b".into()))]);
        book
    }

    fn rows(of: &[(i32, &str)]) -> Rows {
        of.iter().map(|(id, value)| (*id, (*value).to_owned())).collect()
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        assert_eq!(book().settle(&rows(&[(1, "a"), (2, "b")])), None);
        assert!(book().settle(&rows(&[(1, "a")])).is_some());
        assert!(book().settle(&rows(&[(1, "a"), (2, "older")])).is_some());
        assert!(book().settle(&rows(&[(1, "a"), (2, "b"), (3, "c")])).is_some());
    }

    #[test]
    fn a_change_in_doubt_is_there_as_a_whole_or_not_at_all() {
        let doubtful = || {
            let mut book = book();
            book.in_doubt(vec![(1, None), (3, Some("a".into()))]);
            book
        };
        assert_eq!(doubtful().settle(&rows(&[(1, "a"), (2, "b")])), None);
        let mut book = doubtful();
        assert_eq!(book.settle(&rows(&[(2, "b"), (3, "a")])), None);
        assert!(!book.is_in_doubt());
        assert!(book.settle(&rows(&[(1, "a"), (2, "b")])).is_some());
        assert!(doubtful().settle(&rows(&[(2, "b")])).is_some());
    }
}
