//! The CNI_* variables. Set but empty is the same as absent: libcni always exports all of them.

use std::ffi::OsString;

use crate::{error::CniError, verb::Verb};

pub(crate) struct Variables<F>(pub(crate) F);

impl<F: Fn(&str) -> Option<OsString>> Variables<F> {
    pub(crate) fn get(&self, name: &'static str) -> Result<Option<String>, CniError> {
        match (self.0)(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            Some(Err(_)) => Err(CniError::Variable { name, problem: "it is not UTF-8".to_owned() }),
        }
    }

    /// For a variable that [`Self::require`] has seen.
    pub(crate) fn required(&self, name: &'static str) -> Result<String, CniError> {
        self.get(name)?.ok_or_else(|| CniError::MissingVariables(name.to_owned()))
    }

    /// Fails with the names of all that are missing.
    pub(crate) fn require(&self, verb: Verb) -> Result<(), CniError> {
        let mut missing = Vec::new();
        for name in verb.required() {
            if self.get(name)?.is_none() {
                missing.push(*name);
            }
        }
        if missing.is_empty() {
            Ok(())
        } else {
            Err(CniError::MissingVariables(missing.join(", ")))
        }
    }
}
