# SPDX-License-Identifier: Apache-2.0
#
# dlopen, interposed. The C library decides by the return address who calls it ($ORIGIN, RUNPATH,
# the caller's namespace), so the real function must be jumped to, not called: the observer looks at
# the file name first, then the real dlopen sees exactly the caller's frame and arguments.
#ifdef __x86_64__
        .text
        .globl  dlopen
        .type   dlopen, @function
        .p2align 4
dlopen:
        .cfi_startproc
        endbr64
        push    %rdi
        .cfi_adjust_cfa_offset 8
        push    %rsi
        .cfi_adjust_cfa_offset 8
        sub     $8, %rsp
        .cfi_adjust_cfa_offset 8
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
#endif
        .section .note.GNU-stack,"",@progbits
