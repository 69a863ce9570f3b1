//! What Burn's CUDA bindings can ask for and this driver has not: each call is recorded, and makes
//! a run unusable.

use crate::abi::{CUresult, NOT_SUPPORTED};
use crate::record::Line;

/// `NVRTC_ERROR_INTERNAL_ERROR`: the one code of NVRTC's that fits.
const INTERNAL_ERROR: CUresult = 11;

#[cold]
fn unsupported(function: &str, code: CUresult) -> CUresult {
    Line::new("unsupported").with("function", function).write();
    code
}

/// Functions without parameters: a C caller may pass any, and none is looked at.
macro_rules! stubs {
    ($code:ident: $($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name() -> CUresult {
            unsupported(stringify!($name), $code)
        }
    )* };
}

stubs! { INTERNAL_ERROR:
    nvrtcGetBundledHeadersInfo nvrtcGetLTOIR nvrtcGetLTOIRSize nvrtcGetOptiXIR
    nvrtcGetOptiXIRSize nvrtcGetTileIR nvrtcGetTileIRSize nvrtcInstallBundledHeaders
    nvrtcRemoveBundledHeaders
}

stubs! { NOT_SUPPORTED:
    cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayCreate_v2 cuArrayDestroy
    cuArrayGetDescriptor_v2 cuArrayGetMemoryRequirements cuArrayGetPlane
    cuArrayGetSparseProperties cuCoredumpDeregisterCompleteCallback
    cuCoredumpDeregisterStartCallback cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal
    cuCoredumpRegisterCompleteCallback cuCoredumpRegisterStartCallback cuCoredumpSetAttribute
    cuCoredumpSetAttributeGlobal cuCtxAttach cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4
    cuCtxDestroy_v2 cuCtxDetach cuCtxDisablePeerAccess cuCtxEnablePeerAccess cuCtxFromGreenCtx
    cuCtxGetDevResource cuCtxGetExecAffinity cuCtxGetSharedMemConfig cuCtxRecordEvent
    cuCtxResetPersistingL2Cache cuCtxSetSharedMemConfig cuCtxWaitEvent cuDestroyExternalMemory
    cuDestroyExternalSemaphore cuDevResourceGenerateDesc cuDevSmResourceSplit
    cuDevSmResourceSplitByCount cuDeviceGetCliqueCount cuDeviceGetCliqueInfo
    cuDeviceGetDevResource cuDeviceGetExecAffinitySupport cuDeviceGetFabricClusterUuid
    cuDeviceGetGraphMemAttribute cuDeviceGetHostAtomicCapabilities cuDeviceGetLuid
    cuDeviceGetP2PAtomicCapabilities cuDeviceGetTexture1DLinearMaxWidth cuDeviceGraphMemTrim
    cuDeviceRegisterAsyncNotification cuDeviceSetGraphMemAttribute
    cuDeviceUnregisterAsyncNotification cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuFlushGPUDirectRDMAWrites cuFuncGetParamCount
    cuFuncGetParamInfo cuFuncSetBlockShape cuFuncSetSharedSize cuGetExportTable
    cuGraphAddBatchMemOpNode cuGraphAddChildGraphNode cuGraphAddDependencies
    cuGraphAddDependencies_v2 cuGraphAddEmptyNode cuGraphAddEventRecordNode
    cuGraphAddEventWaitNode cuGraphAddExternalSemaphoresSignalNode
    cuGraphAddExternalSemaphoresWaitNode cuGraphAddHostNode cuGraphAddKernelNode
    cuGraphAddKernelNode_v2 cuGraphAddMemAllocNode cuGraphAddMemFreeNode cuGraphAddMemcpyNode
    cuGraphAddMemsetNode cuGraphAddNode cuGraphAddNode_v2 cuGraphAddNode_v3
    cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams cuGraphChildGraphNodeGetGraph
    cuGraphClone cuGraphConditionalHandleCreate cuGraphCreate cuGraphDebugDotPrint
    cuGraphDestroy cuGraphDestroyNode cuGraphEventRecordNodeGetEvent
    cuGraphEventRecordNodeSetEvent cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent
    cuGraphExecBatchMemOpNodeSetParams cuGraphExecChildGraphNodeSetParams cuGraphExecDestroy
    cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent
    cuGraphExecExternalSemaphoresSignalNodeSetParams
    cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExecGetFlags cuGraphExecGetId
    cuGraphExecHostNodeSetParams cuGraphExecKernelNodeSetParams
    cuGraphExecKernelNodeSetParams_v2 cuGraphExecMemcpyNodeSetParams
    cuGraphExecMemsetNodeSetParams cuGraphExecNodeSetParams cuGraphExecUpdate
    cuGraphExecUpdate_v2 cuGraphExternalSemaphoresSignalNodeGetParams
    cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeGetParams
    cuGraphExternalSemaphoresWaitNodeSetParams cuGraphGetEdges cuGraphGetEdges_v2 cuGraphGetId
    cuGraphGetNodes cuGraphGetRootNodes cuGraphHostNodeGetParams cuGraphHostNodeSetParams
    cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphInstantiate_v2
    cuGraphKernelNodeCopyAttributes cuGraphKernelNodeGetAttribute cuGraphKernelNodeGetParams
    cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetAttribute cuGraphKernelNodeSetParams
    cuGraphKernelNodeSetParams_v2 cuGraphLaunch cuGraphMemAllocNodeGetParams
    cuGraphMemFreeNodeGetParams cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams
    cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphNodeFindInClone
    cuGraphNodeGetContainingGraph cuGraphNodeGetDependencies cuGraphNodeGetDependencies_v2
    cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2 cuGraphNodeGetEnabled
    cuGraphNodeGetLocalId cuGraphNodeGetParams cuGraphNodeGetToolsId cuGraphNodeGetType
    cuGraphNodeSetEnabled cuGraphNodeSetParams cuGraphNodeSetParams_v2 cuGraphReleaseUserObject
    cuGraphRemoveDependencies cuGraphRemoveDependencies_v2 cuGraphRetainUserObject cuGraphUpload
    cuGraphicsMapResources cuGraphicsResourceGetMappedMipmappedArray
    cuGraphicsResourceGetMappedPointer_v2 cuGraphicsResourceSetMapFlags_v2
    cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources cuGraphicsUnregisterResource
    cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxGetDevResource cuGreenCtxGetId
    cuGreenCtxRecordEvent cuGreenCtxStreamCreate cuGreenCtxWaitEvent cuImportExternalMemory
    cuImportExternalSemaphore cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcGetMemHandle
    cuIpcOpenEventHandle cuIpcOpenMemHandle_v2 cuKernelGetAttribute cuKernelGetFunction
    cuKernelGetLibrary cuKernelGetName cuKernelGetParamCount cuKernelGetParamInfo
    cuKernelSetAttribute cuKernelSetCacheConfig cuLaunch cuLaunchCooperativeKernelMultiDevice
    cuLaunchGrid cuLaunchGridAsync cuLibraryEnumerateKernels cuLibraryGetGlobal
    cuLibraryGetKernel cuLibraryGetKernelCount cuLibraryGetManaged cuLibraryGetModule
    cuLibraryGetUnifiedFunction cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload
    cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete cuLinkCreate_v2 cuLinkDestroy
    cuLogicalEndpointAddDevice cuLogicalEndpointBindAddr cuLogicalEndpointBindMem
    cuLogicalEndpointCreate cuLogicalEndpointDestroy cuLogicalEndpointExport
    cuLogicalEndpointGetLimits cuLogicalEndpointIdRelease cuLogicalEndpointIdReserve
    cuLogicalEndpointImport cuLogicalEndpointQuery cuLogicalEndpointUnbind cuLogsCurrent
    cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback cuLogsUnregisterCallback
    cuMemAddressFree cuMemAddressReserve cuMemAdvise cuMemAdvise_v2 cuMemAllocManaged
    cuMemBatchDecompressAsync cuMemCreate cuMemDiscardAndPrefetchBatchAsync
    cuMemDiscardBatchAsync cuMemExportToShareableHandle cuMemGetAccess
    cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle cuMemGetDefaultMemPool
    cuMemGetHandleForAddressRange cuMemGetLocationInfo cuMemGetMemPool
    cuMemImportFromShareableHandle cuMemMap cuMemMapArrayAsync cuMemPoolExportPointer
    cuMemPoolExportToShareableHandle cuMemPoolGetAccess cuMemPoolImportFromShareableHandle
    cuMemPoolImportPointer cuMemPoolSetAccess cuMemPrefetchAsync cuMemPrefetchAsync_v2
    cuMemPrefetchBatchAsync cuMemRangeGetAttribute cuMemRangeGetAttributes cuMemRelease
    cuMemRetainAllocationHandle cuMemSetAccess cuMemSetMemPool cuMemUnmap cuMemcpy3DAsync_v2
    cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_v2 cuMemcpy3DPeer cuMemcpy3DPeerAsync
    cuMemcpy3DWithAttributesAsync cuMemcpy3D_v2 cuMemcpyAtoA_v2 cuMemcpyAtoD_v2
    cuMemcpyAtoHAsync_v2 cuMemcpyAtoH_v2 cuMemcpyBatchAsync cuMemcpyBatchAsync_v2
    cuMemcpyDtoA_v2 cuMemcpyHtoAAsync_v2 cuMemcpyHtoA_v2 cuMemcpyWithAttributesAsync
    cuMipmappedArrayCreate cuMipmappedArrayDestroy cuMipmappedArrayGetLevel
    cuMipmappedArrayGetMemoryRequirements cuMipmappedArrayGetSparseProperties cuModuleGetSurfRef
    cuModuleGetTexRef cuModuleLoad cuMulticastAddDevice cuMulticastBindAddr
    cuMulticastBindAddr_v2 cuMulticastBindMem cuMulticastBindMem_v2 cuMulticastCreate
    cuMulticastGetGranularity cuMulticastUnbind cuOccupancyAvailableDynamicSMemPerBlock
    cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveClusters
    cuOccupancyMaxPotentialBlockSize cuOccupancyMaxPotentialBlockSizeWithFlags
    cuOccupancyMaxPotentialClusterSize cuParamSetSize cuParamSetTexRef cuParamSetf cuParamSeti
    cuParamSetv cuPointerSetAttribute cuProfilerInitialize cuSignalExternalSemaphoresAsync
    cuStreamAttachMemAsync cuStreamBatchMemOp cuStreamBatchMemOp_v2 cuStreamBeginCaptureToCig
    cuStreamBeginCaptureToGraph cuStreamBeginCapture_v2 cuStreamBeginRecaptureToGraph
    cuStreamCopyAttributes cuStreamEndCapture cuStreamEndCaptureToCig cuStreamGetAttribute
    cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v3 cuStreamGetCtx_v2
    cuStreamGetDevResource cuStreamGetGreenCtx cuStreamSetAttribute
    cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_v2 cuStreamWaitValue32
    cuStreamWaitValue32_v2 cuStreamWaitValue64 cuStreamWaitValue64_v2 cuStreamWriteValue32
    cuStreamWriteValue32_v2 cuStreamWriteValue64 cuStreamWriteValue64_v2 cuSurfObjectCreate
    cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuSurfRefGetArray cuSurfRefSetArray
    cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc
    cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc cuTexRefCreate cuTexRefDestroy
    cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor
    cuTexRefGetFilterMode cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy
    cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp
    cuTexRefGetMipmappedArray cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode
    cuTexRefSetAddress_v2 cuTexRefSetArray cuTexRefSetBorderColor cuTexRefSetFilterMode
    cuTexRefSetFlags cuTexRefSetFormat cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode
    cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray
    cuThreadExchangeStreamCaptureMode cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain
    cuWaitExternalSemaphoresAsync
}
