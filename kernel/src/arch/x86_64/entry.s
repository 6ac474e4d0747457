# How the kernel is entered from user mode and left again. In assembly because a user's registers are live at both borders.
# Included by image.rs, which supplies the names in braces. Interrupts are off throughout.

.equ KERNEL_CODE, 0x08
.equ USER_DATA, 0x23
.equ USER_CODE, 0x2b
.equ ENTERED_BY_SYSCALL, 256
# Offset of RSP0 in the TSS.
.equ RSP0, 4

.macro push_general
    push rax
    push rcx
    push rdx
    push rbx
    push rbp
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
.endm

.macro pop_general
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbp
    pop rbx
    pop rdx
    pop rcx
    pop rax
.endm

.section .text.entry, "ax"

# SYSCALL keeps the user's rsp; the CPU put rip into rcx and the flags into r11. No scratch register is free, hence the static.
.balign 16
.globl syscall_entry
syscall_entry:
    mov [rip + {user_rsp}], rsp
    mov rsp, [rip + {tss} + RSP0]
    push USER_DATA
    push qword ptr [rip + {user_rsp}]
    push r11
    push USER_CODE
    push rcx
    push 0
    push ENTERED_BY_SYSCALL
    push_general
    mov rsp, offset __stack_top
    xor ebp, ebp
    call {entered_by_syscall}

# All vectors end here with vector and error on top of the CPU's frame: in user mode that frame lies in the current Registers.
.balign 16
vector_entry:
    test byte ptr [rsp + 24], 3
    jz 2f
    push_general
    mov edi, [rsp + 15 * 8]
    mov rsi, [rsp + 16 * 8]
    jmp 3f
2:  cmp qword ptr [rsp], 32
    jb fatal_entry
    # An interrupt in kernel mode comes only while idling: nothing to keep.
    mov edi, [rsp]
    xor esi, esi
3:  mov rsp, offset __stack_top
    # Clears DF, AC (SMAP!), NT and TF, whatever the user had.
    push 2
    popfq
    xor ebp, ebp
    call {entered_by_vector}

fatal_entry:
    push_general
    mov rdi, rsp
    and rsp, -16
    push 2
    popfq
    call {fatal}

# One stub per vector, 16 bytes apart. Vectors 8, 10 to 14, 17, 21, 29, 30 push an error code themselves. NMI, double fault and machine check
# have a stack of their own and never return.
.altmacro
.macro vector_stub vector
    .balign 16
    .if \vector == 2 || \vector == 18
        push 0
        push \vector
        jmp fatal_entry
    .elseif \vector == 8
        push \vector
        jmp fatal_entry
    .elseif (\vector >= 10 && \vector <= 14) || \vector == 17 || \vector == 21 || \vector == 29 || \vector == 30
        push \vector
        jmp vector_entry
    .else
        push 0
        push \vector
        jmp vector_entry
    .endif
.endm
.balign 16
.globl vector_stubs
vector_stubs:
.set number, 0
.rept 256
    vector_stub %number
    .set number, number + 1
.endr
.noaltmacro

# rdi: Registers, sane. All registers exactly as they are there.
.balign 16
.globl leave_by_iret
leave_by_iret:
    mov rsp, rdi
    pop_general
    add rsp, 16
    iretq

# rdi: Registers, sane. As after SYSCALL: rcx holds rip, r11 the flags. rip is below the canonical border, so SYSRET cannot fault.
.balign 16
.globl leave_by_sysret
leave_by_sysret:
    mov rsp, rdi
    pop_general
    mov rcx, [rsp + 16]
    mov r11, [rsp + 32]
    mov rsp, [rsp + 40]
    sysretq

# STI takes effect after the following instruction, so no interrupt slips in between it and HLT.
.balign 16
.globl wait_for_event
wait_for_event:
    mov rsp, offset __stack_top
    xor ebp, ebp
4:  sti
    hlt
    cli
    jmp 4b

# rdi: function, rsi: its argument.
.globl on_fresh_stack
on_fresh_stack:
    mov rax, rdi
    mov rdi, rsi
    mov rsp, offset __stack_top
    xor ebp, ebp
    call rax
    ud2

# rdi: physical root, rsi: stack in it, rdx: function, rcx: its argument. One piece, because between the two moves there is no stack.
.globl enter_root
enter_root:
    mov cr3, rdi
    mov rsp, rsi
    mov rdi, rcx
    xor ebp, ebp
    call rdx
    ud2
