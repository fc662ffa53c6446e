# SPDX-License-Identifier: Apache-2.0
#
# dlopen and dlmopen, interposed. The C library decides by the return address who calls it ($ORIGIN, RUNPATH,
# the caller's namespace), so the real function must be jumped to, not called: the observer looks at
# the file name and the caller's address first, then the real dlopen sees exactly the caller's frame and arguments.
#ifdef __x86_64__
        .text
        .globl  dlopen, vramscope_dlopen
        # The same under a name that nobody else can define.
        .hidden vramscope_dlopen
        .type   vramscope_dlopen, @function
        .type   dlopen, @function
        .p2align 4
dlopen:
vramscope_dlopen:
        .cfi_startproc
        endbr64
        push    %rdi
        .cfi_adjust_cfa_offset 8
        push    %rsi
        .cfi_adjust_cfa_offset 8
        sub     $8, %rsp
        .cfi_adjust_cfa_offset 8
        mov     24(%rsp), %rdx
        call    vramscope_observe_dlopen
        add     $8, %rsp
        .cfi_adjust_cfa_offset -8
        pop     %rsi
        .cfi_adjust_cfa_offset -8
        pop     %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   dlopen, .-dlopen

        .globl  dlmopen
        .type   dlmopen, @function
        .p2align 4
dlmopen:
        .cfi_startproc
        endbr64
        push    %rdi
        .cfi_adjust_cfa_offset 8
        push    %rsi
        .cfi_adjust_cfa_offset 8
        push    %rdx
        .cfi_adjust_cfa_offset 8
        mov     24(%rsp), %rcx
        call    vramscope_observe_dlmopen
        pop     %rdx
        .cfi_adjust_cfa_offset -8
        pop     %rsi
        .cfi_adjust_cfa_offset -8
        pop     %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   dlmopen, .-dlmopen
#endif
        .section .note.GNU-stack,"",@progbits
