//! `jsonb` as an argument that contains a secret: its text, which is wiped. pgrx only offers parsed values, which are
//! not wiped, and raises an error if one is nested deeper than its parser accepts.

use pgrx::callconv::{Arg, ArgAbi};
use pgrx::nullable::Nullable;
use pgrx::{FromDatum, direct_function_call, pg_sys};
use std::ffi::CStr;
use zeroize::{Zeroize, Zeroizing};

pub struct JsonText(pub Zeroizing<Vec<u8>>);

impl FromDatum for JsonText {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _: pg_sys::Oid,
    ) -> Option<JsonText> {
        if is_null {
            return None;
        }
        // SAFETY: this is a jsonb, as the function's declaration says; nothing else uses its text, a palloc'd C
        // string.
        unsafe {
            let text = direct_function_call::<&CStr>(pg_sys::jsonb_out, &[Some(datum)])?;
            let (start, bytes) = (text.as_ptr().cast_mut(), text.to_bytes().to_vec());
            std::slice::from_raw_parts_mut(start.cast::<u8>(), bytes.len()).zeroize();
            pg_sys::pfree(start.cast());
            Some(JsonText(Zeroizing::new(bytes)))
        }
    }
}

// SAFETY: a jsonb is passed by reference, as FromDatum takes it.
unsafe impl<'fcx> ArgAbi<'fcx> for JsonText {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller promises that it is not NULL.
        let text = unsafe { arg.unbox_arg_using_from_datum() };
        text.unwrap_or_else(|| JsonText(Zeroizing::default()))
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: as above.
        unsafe { arg.unbox_arg_using_from_datum() }.into()
    }
}

pgrx::pgrx_sql_entity_graph::impl_sql_translatable!(JsonText, arg_only = "jsonb");
