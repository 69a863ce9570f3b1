//! Finds the visible GPU that the user selects.

use miette::Diagnostic;
use thiserror::Error;

use super::{Survey, SurveyedDevice};

/// Why a selection does not match exactly one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum DeviceError {
    /// No visible GPU has this number or id.
    #[error("there is no GPU `{wanted}` on this machine")]
    #[diagnostic(code(gpu::unknown_device))]
    Unknown {
        /// The selection.
        wanted: String,
        /// Says to choose one of the visible GPUs, and lists them.
        #[help]
        there: String,
    },
    /// The ids of several visible GPUs start with the selection.
    #[error("the ids of several GPUs start with `{wanted}`")]
    #[diagnostic(code(gpu::ambiguous_device))]
    Ambiguous {
        /// The selection.
        wanted: String,
        /// Says to choose one of the matching GPUs, and lists them.
        #[help]
        there: String,
    },
}

impl Survey {
    /// Finds the GPU with a number in CUDA's order (`1`), or with an id or the start of an id (`GPU-6f3a`).
    ///
    /// Without a selection, this is the first GPU.
    ///
    /// # Errors
    /// If no GPU or more than one GPU matches.
    pub fn device(&self, wanted: Option<&str>) -> Result<&SurveyedDevice, DeviceError> {
        let wanted = wanted.unwrap_or("0").trim();
        let unknown = || DeviceError::Unknown {
            wanted: wanted.to_owned(),
            there: listed(&self.devices.iter().collect::<Vec<_>>()),
        };
        if wanted.bytes().all(|byte| byte.is_ascii_digit()) {
            let ordinal = wanted.parse().ok();
            let found = self.devices.iter().find(|device| Some(device.ordinal) == ordinal);
            return found.ok_or_else(unknown);
        }
        let begins = |device: &&SurveyedDevice| {
            // `get`: the selection may be longer than the id, or end within a character.
            let start = device.uuid.get(..wanted.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(wanted))
        };
        let found: Vec<_> = self.devices.iter().filter(begins).collect();
        match found.as_slice() {
            [] => Err(unknown()),
            [one] => Ok(one),
            several => Err(DeviceError::Ambiguous {
                wanted: wanted.to_owned(),
                there: listed(several),
            }),
        }
    }
}

fn listed(devices: &[&SurveyedDevice]) -> String {
    let all: Vec<_> = devices
        .iter()
        .map(|device| format!("{} ({}, {})", device.ordinal, device.uuid, device.name))
        .collect();
    match all.as_slice() {
        [] => "check CUDA_VISIBLE_DEVICES: no GPU is visible".to_owned(),
        all => format!("choose one of: {}", all.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::survey::tests::{device, survey};

    fn two() -> Survey {
        let mut second = device();
        second.ordinal = 1;
        second.uuid = "GPU-6f3b0000-0000-0000-0000-000000000002".to_owned();
        survey(vec![device(), second])
    }

    #[test]
    fn a_gpu_is_meant_by_its_number_or_its_id() {
        let survey = two();
        let ordinal = |wanted| survey.device(wanted).unwrap().ordinal;
        assert_eq!(ordinal(None), 0);
        assert_eq!(ordinal(Some("1")), 1);
        assert_eq!(ordinal(Some("GPU-6f3b")), 1);
        assert_eq!(ordinal(Some("gpu-6F3A")), 0);
        assert_eq!(ordinal(Some("GPU-6f3a0000-0000-0000-0000-000000000001")), 0);
    }

    #[test]
    fn a_gpu_that_is_not_there_is_answered_with_those_that_are() {
        let survey = two();
        for wanted in ["2", "GPU-7", "MIG-6f3a", "99999999999999999999", "-1", "l4"] {
            let error = survey.device(Some(wanted)).unwrap_err();
            let DeviceError::Unknown { there, .. } = &error else {
                panic!("{error}")
            };
            assert!(
                there.contains("1 (GPU-6f3b") && there.contains("NVIDIA H200"),
                "{there}"
            );
        }
        assert!(matches!(
            survey.device(Some("GPU-6f3")),
            Err(DeviceError::Ambiguous { .. })
        ));
    }
}
