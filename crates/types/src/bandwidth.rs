use serde::{Deserialize, Serialize};

/// A pod's limits in **bytes per second**; `None` is no limit. Ingress is towards the pod.
///
/// Terway counts in bytes, Kubernetes and the CNI convention in bits: conversion is the
/// business of whoever reads those.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidth {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<u64>,
}
