//! The values of a row, as a trigger receives them.

use pgrx::prelude::*;
use pgrx::varlena;

/// One version of a row.
#[derive(Clone, Copy)]
pub struct NativeRow(*mut pg_sys::TupleTableSlot);

impl NativeRow {
    /// # Safety
    /// The slot holds a row for as long as this is used.
    pub unsafe fn new(slot: *mut pg_sys::TupleTableSlot) -> NativeRow {
        NativeRow(slot)
    }

    /// Whether both are the same slot.
    pub fn is(self, other: NativeRow) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    /// Returns a column's value, or None if it is NULL.
    pub fn value(self, number: pg_sys::AttrNumber) -> Option<pg_sys::Datum> {
        let mut is_null = false;
        // SAFETY: the slot holds a row; the server returns NULL for a column that the row does not have.
        let value = unsafe { pg_sys::slot_getattr(self.0, number.into(), &mut is_null) };
        (!is_null).then_some(value)
    }
}

/// How values of a type are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    ByValue,
    /// As this number of bytes elsewhere.
    Fixed(usize),
    /// As bytes with their own length.
    Varying,
    Other,
}

impl Form {
    pub fn of(type_oid: pg_sys::Oid) -> Form {
        let (mut length, mut by_value) = (0_i16, false);
        // SAFETY: this is a look-up in the system cache.
        unsafe { pg_sys::get_typlenbyval(type_oid, &mut length, &mut by_value) };
        match (by_value, usize::try_from(length)) {
            (true, _) => Form::ByValue,
            (false, Ok(length)) => Form::Fixed(length),
            (false, Err(_)) if length == -1 => Form::Varying,
            (false, Err(_)) => Form::Other,
        }
    }

    /// Returns the bytes of a value that is stored plainly in its row, or None if it is elsewhere, compressed, or
    /// passed by value.
    ///
    /// # Safety
    /// The value is of such a type, and lives as long as the result.
    pub unsafe fn bytes<'a>(self, value: pg_sys::Datum) -> Option<&'a [u8]> {
        // SAFETY: the caller keeps the promise above.
        unsafe {
            match self {
                Form::Fixed(length) => Some(std::slice::from_raw_parts(value.cast_mut_ptr::<u8>(), length)),
                Form::Varying => {
                    let value = value.cast_mut_ptr::<pg_sys::varlena>();
                    let is_external = varlena::varatt_is_1b_e(value);
                    let is_plain = !is_external && !varlena::varatt_is_4b_c(value);
                    is_plain.then(|| varlena::varlena_to_byte_slice(value))
                }
                Form::ByValue | Form::Other => None,
            }
        }
    }

    /// Whether two values have the same bytes, or None if this cannot be decided here.
    ///
    /// # Safety
    /// The values are of such a type.
    pub unsafe fn same(self, a: pg_sys::Datum, b: pg_sys::Datum) -> Option<bool> {
        match self {
            Form::ByValue => Some(a == b),
            // SAFETY: the caller keeps the promise above.
            Form::Fixed(_) | Form::Varying | Form::Other => unsafe { Some(self.bytes(a)? == self.bytes(b)?) },
        }
    }
}
