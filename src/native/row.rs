//! Values of a row, as a trigger is given them.

use pgrx::prelude::*;
use pgrx::varlena;

/// One version of a row.
#[derive(Clone, Copy)]
pub struct NativeRow(*mut pg_sys::TupleTableSlot);

impl NativeRow {
    /// # Safety
    /// A slot that holds a row for as long as this is used.
    pub unsafe fn new(slot: *mut pg_sys::TupleTableSlot) -> NativeRow {
        NativeRow(slot)
    }

    /// Whether both are one and the same.
    pub fn is(self, other: NativeRow) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    /// A column; None: it is NULL.
    pub fn value(self, number: pg_sys::AttrNumber) -> Option<pg_sys::Datum> {
        let mut is_null = false;
        // SAFETY: the slot holds a row; of a column that it has not, the server says that it is NULL.
        let value = unsafe { pg_sys::slot_getattr(self.0, number.into(), &mut is_null) };
        (!is_null).then_some(value)
    }
}

/// How values of a type are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    ByValue,
    /// So many bytes elsewhere.
    Fixed(usize),
    /// With a length of their own.
    Varying,
    Other,
}

impl Form {
    pub fn of(type_oid: pg_sys::Oid) -> Form {
        let (mut length, mut by_value) = (0_i16, false);
        // SAFETY: a look-up in the system cache.
        unsafe { pg_sys::get_typlenbyval(type_oid, &mut length, &mut by_value) };
        match (by_value, usize::try_from(length)) {
            (true, _) => Form::ByValue,
            (false, Ok(length)) => Form::Fixed(length),
            (false, Err(_)) if length == -1 => Form::Varying,
            (false, Err(_)) => Form::Other,
        }
    }

    /// The bytes of a value that stand in its row as they are; None: they are elsewhere, compressed, or it is by value.
    ///
    /// # Safety
    /// A value of such a type, which lives as long as what is returned.
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

    /// Whether two values are the same bytes; None: that is not seen here.
    ///
    /// # Safety
    /// Values of such a type.
    pub unsafe fn same(self, a: pg_sys::Datum, b: pg_sys::Datum) -> Option<bool> {
        match self {
            Form::ByValue => Some(a == b),
            // SAFETY: the caller keeps the promise above.
            Form::Fixed(_) | Form::Varying | Form::Other => unsafe { Some(self.bytes(a)? == self.bytes(b)?) },
        }
    }
}
