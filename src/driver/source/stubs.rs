//! What Burn's CUDA bindings can ask for and the virtual driver has not: each call is recorded, and
//! makes a run unusable. Forwarded, they reach the real function, unless it would hand out memory
//! that nobody counts: then the figures would be wrong, and they stay unsupported.

use crate::trampoline::Stub;

/// Functions without parameters: a C caller may pass any, and none is looked at.
macro_rules! stubs {
    ($passes:literal: $($name:ident)*) => { $(
        const _: () = {
            static STUB: Stub = Stub::new(concat!(stringify!($name), "\0"), $passes);

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(crate) extern "C" fn $name() {
                trampoline!(STUB)
            }
        };
    )* };
}

/// The same, never passed on: they make device memory, a context that holds some, or, while a
/// stream is captured, nothing where a call says that it did.
macro_rules! uncounted {
    ($($name:ident)*) => {
        pub(crate) const UNCOUNTED: &[&str] = &[$(stringify!($name)),*];
        stubs! { false: $($name)* }
    };
}

uncounted! {
    cuArray3DCreate_v2 cuArrayCreate_v2 cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4
    cuCtxFromGreenCtx cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray
    cuGraphAddMemAllocNode cuGraphAddNode cuGraphAddNode_v2 cuGraphAddNode_v3
    cuGraphicsMapResources cuGraphicsResourceGetMappedMipmappedArray
    cuGraphicsResourceGetMappedPointer_v2 cuGraphicsSubResourceGetMappedArray cuGreenCtxCreate
    cuImportExternalMemory cuIpcOpenMemHandle_v2 cuLogicalEndpointBindAddr
    cuLogicalEndpointBindMem cuLogicalEndpointCreate cuLogicalEndpointImport cuMemAddressReserve
    cuMemAllocManaged cuMemCreate cuMemImportFromShareableHandle cuMemMap cuMemMapArrayAsync
    cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuMipmappedArrayCreate
    cuMulticastBindAddr cuMulticastBindAddr_v2 cuMulticastBindMem cuMulticastBindMem_v2
    cuMulticastCreate cuStreamBeginCaptureToCig cuStreamBeginCaptureToGraph
    cuStreamBeginCapture_v2 cuStreamBeginRecaptureToGraph
}

stubs! { true:
    nvrtcGetBundledHeadersInfo nvrtcGetLTOIR nvrtcGetLTOIRSize nvrtcGetOptiXIR
    nvrtcGetOptiXIRSize nvrtcGetTileIR nvrtcGetTileIRSize nvrtcInstallBundledHeaders
    nvrtcRemoveBundledHeaders
}

stubs! { false:
    ncclAlltoAll ncclCommDeregister ncclCommGrow ncclCommInitRankScalable ncclCommMemStats
    ncclCommRegister ncclCommResume ncclCommRevoke ncclCommShrink ncclCommSplit ncclCommSuspend
    ncclCommWindowDeregister ncclCommWindowRegister ncclGather ncclGroupSimulateEnd ncclMemAlloc
    ncclMemFree ncclParamBind ncclParamDumpAll ncclParamGet ncclParamGetAllParameterKeys
    ncclParamGetI16 ncclParamGetI32 ncclParamGetI64 ncclParamGetI8 ncclParamGetParameter
    ncclParamGetStr ncclParamGetU16 ncclParamGetU32 ncclParamGetU64 ncclParamGetU8 ncclPutSignal
    ncclRedOpCreatePreMulSum ncclRedOpDestroy ncclResetDebugInit ncclScatter ncclSignal
    ncclWaitSignal ncclWinGetUserPtr
}

stubs! { true:
    cuArray3DGetDescriptor_v2 cuArrayDestroy cuArrayGetDescriptor_v2
    cuArrayGetMemoryRequirements cuArrayGetPlane cuArrayGetSparseProperties
    cuCoredumpDeregisterCompleteCallback cuCoredumpDeregisterStartCallback
    cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal cuCoredumpRegisterCompleteCallback
    cuCoredumpRegisterStartCallback cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal
    cuCtxAttach cuCtxDestroy_v2 cuCtxDetach cuCtxDisablePeerAccess cuCtxEnablePeerAccess
    cuCtxGetDevResource cuCtxGetExecAffinity cuCtxGetSharedMemConfig cuCtxRecordEvent
    cuCtxResetPersistingL2Cache cuCtxSetSharedMemConfig cuCtxWaitEvent cuDestroyExternalMemory
    cuDestroyExternalSemaphore cuDevResourceGenerateDesc cuDevSmResourceSplit
    cuDevSmResourceSplitByCount cuDeviceGetCliqueCount cuDeviceGetCliqueInfo
    cuDeviceGetDevResource cuDeviceGetExecAffinitySupport cuDeviceGetFabricClusterUuid
    cuDeviceGetGraphMemAttribute cuDeviceGetHostAtomicCapabilities cuDeviceGetLuid
    cuDeviceGetP2PAtomicCapabilities cuDeviceGetTexture1DLinearMaxWidth cuDeviceGraphMemTrim
    cuDeviceRegisterAsyncNotification cuDeviceSetGraphMemAttribute
    cuDeviceUnregisterAsyncNotification cuFlushGPUDirectRDMAWrites cuFuncGetParamCount
    cuFuncGetParamInfo cuFuncSetBlockShape cuFuncSetSharedSize cuGetExportTable
    cuGraphAddBatchMemOpNode cuGraphAddChildGraphNode cuGraphAddDependencies
    cuGraphAddDependencies_v2 cuGraphAddEmptyNode cuGraphAddEventRecordNode
    cuGraphAddEventWaitNode cuGraphAddExternalSemaphoresSignalNode
    cuGraphAddExternalSemaphoresWaitNode cuGraphAddHostNode cuGraphAddKernelNode
    cuGraphAddKernelNode_v2 cuGraphAddMemFreeNode cuGraphAddMemcpyNode cuGraphAddMemsetNode
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
    cuGraphicsResourceSetMapFlags_v2 cuGraphicsUnmapResources cuGraphicsUnregisterResource
    cuGreenCtxDestroy cuGreenCtxGetDevResource cuGreenCtxGetId cuGreenCtxRecordEvent
    cuGreenCtxStreamCreate cuGreenCtxWaitEvent cuImportExternalSemaphore cuIpcCloseMemHandle
    cuIpcGetEventHandle cuIpcGetMemHandle cuIpcOpenEventHandle cuKernelGetAttribute
    cuKernelGetFunction cuKernelGetLibrary cuKernelGetName cuKernelGetParamCount
    cuKernelGetParamInfo cuKernelSetAttribute cuKernelSetCacheConfig cuLaunch
    cuLaunchCooperativeKernelMultiDevice cuLaunchGrid cuLaunchGridAsync
    cuLibraryEnumerateKernels cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetKernelCount
    cuLibraryGetManaged cuLibraryGetModule cuLibraryGetUnifiedFunction cuLibraryLoadData
    cuLibraryLoadFromFile cuLibraryUnload cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete
    cuLinkCreate_v2 cuLinkDestroy cuLogicalEndpointAddDevice cuLogicalEndpointDestroy
    cuLogicalEndpointExport cuLogicalEndpointGetLimits cuLogicalEndpointIdRelease
    cuLogicalEndpointIdReserve cuLogicalEndpointQuery cuLogicalEndpointUnbind cuLogsCurrent
    cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback cuLogsUnregisterCallback
    cuMemAddressFree cuMemAdvise cuMemAdvise_v2 cuMemBatchDecompressAsync
    cuMemDiscardAndPrefetchBatchAsync cuMemDiscardBatchAsync cuMemExportToShareableHandle
    cuMemGetAccess cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle
    cuMemGetDefaultMemPool cuMemGetHandleForAddressRange cuMemGetLocationInfo cuMemGetMemPool
    cuMemPoolExportPointer cuMemPoolExportToShareableHandle cuMemPoolGetAccess
    cuMemPoolSetAccess cuMemPrefetchAsync cuMemPrefetchAsync_v2 cuMemPrefetchBatchAsync
    cuMemRangeGetAttribute cuMemRangeGetAttributes cuMemRelease cuMemRetainAllocationHandle
    cuMemSetAccess cuMemSetMemPool cuMemUnmap cuMemcpy3DAsync_v2 cuMemcpy3DBatchAsync
    cuMemcpy3DBatchAsync_v2 cuMemcpy3DPeer cuMemcpy3DPeerAsync cuMemcpy3DWithAttributesAsync
    cuMemcpy3D_v2 cuMemcpyAtoA_v2 cuMemcpyAtoD_v2 cuMemcpyAtoHAsync_v2 cuMemcpyAtoH_v2
    cuMemcpyBatchAsync cuMemcpyBatchAsync_v2 cuMemcpyDtoA_v2 cuMemcpyHtoAAsync_v2
    cuMemcpyHtoA_v2 cuMemcpyWithAttributesAsync cuMipmappedArrayDestroy cuMipmappedArrayGetLevel
    cuMipmappedArrayGetMemoryRequirements cuMipmappedArrayGetSparseProperties cuModuleGetSurfRef
    cuModuleGetTexRef cuModuleLoad cuMulticastAddDevice cuMulticastGetGranularity
    cuMulticastUnbind cuOccupancyAvailableDynamicSMemPerBlock
    cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveClusters
    cuOccupancyMaxPotentialBlockSize cuOccupancyMaxPotentialBlockSizeWithFlags
    cuOccupancyMaxPotentialClusterSize cuParamSetSize cuParamSetTexRef cuParamSetf cuParamSeti
    cuParamSetv cuPointerSetAttribute cuProfilerInitialize cuSignalExternalSemaphoresAsync
    cuStreamAttachMemAsync cuStreamBatchMemOp cuStreamBatchMemOp_v2 cuStreamCopyAttributes
    cuStreamEndCapture cuStreamEndCaptureToCig cuStreamGetAttribute cuStreamGetCaptureInfo
    cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v3 cuStreamGetCtx_v2 cuStreamGetDevResource
    cuStreamGetGreenCtx cuStreamSetAttribute cuStreamUpdateCaptureDependencies
    cuStreamUpdateCaptureDependencies_v2 cuStreamWaitValue32 cuStreamWaitValue32_v2
    cuStreamWaitValue64 cuStreamWaitValue64_v2 cuStreamWriteValue32 cuStreamWriteValue32_v2
    cuStreamWriteValue64 cuStreamWriteValue64_v2 cuSurfObjectCreate cuSurfObjectDestroy
    cuSurfObjectGetResourceDesc cuSurfRefGetArray cuSurfRefSetArray cuTexObjectCreate
    cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc
    cuTexObjectGetTextureDesc cuTexRefCreate cuTexRefDestroy cuTexRefGetAddressMode
    cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor cuTexRefGetFilterMode
    cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy cuTexRefGetMipmapFilterMode
    cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp cuTexRefGetMipmappedArray
    cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode cuTexRefSetAddress_v2 cuTexRefSetArray
    cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetFormat
    cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias
    cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray cuThreadExchangeStreamCaptureMode
    cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain cuWaitExternalSemaphoresAsync
}
