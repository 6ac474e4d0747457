# How the kernel is entered from user mode and left again. In assembly because a user's registers are live at both borders.
# Included by image.rs, which supplies the names in braces. Interrupts are off throughout.

.equ KERNEL_CODE, 0x08
.equ ENTERED_BY_SYSCALL, 256
# Offset of RSP0 in the TSS.
.equ RSP0, 4
# Offsets in Registers; `place` is left at its size.
.set place, 0
.irp name, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax, entry, error, rip, cs, flags, rsp, ss
    .set at_\name, place
    .set place, place + 8
.endr

.macro push_general
    .irp name, rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
        push \name
    .endr
.endm

.section .text.entry, "ax"

# SYSCALL keeps the user's rsp; the CPU put rip into rcx and the flags into r11, whose own values are lost. No scratch register is free, hence the static.
# Segments are a user's from the start and stay so.
.balign 16
.globl syscall_entry
syscall_entry:
    mov [rip + {user_rsp}], rsp
    mov rsp, [rip + {tss} + RSP0]
    mov [rsp + at_flags - place], r11
    mov [rsp + at_rip - place], rcx
    mov qword ptr [rsp + at_entry - place], ENTERED_BY_SYSCALL
    .irp name, rax, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r12, r13, r14, r15
        mov [rsp + at_\name - place], \name
    .endr
    mov rax, [rip + {user_rsp}]
    mov [rsp + at_rsp - place], rax
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
    .irp name, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax
        pop \name
    .endr
    add rsp, 16
    iretq

# rdi: Registers, sane. As after SYSCALL: rcx holds rip, r11 the flags. rip is below the canonical border, so SYSRET cannot fault.
.balign 16
.globl leave_by_sysret
leave_by_sysret:
    .irp name, r15, r14, r13, r12, r10, r9, r8, rsi, rbp, rbx, rdx, rax, rsp
        mov \name, [rdi + at_\name]
    .endr
    mov r11, [rdi + at_flags]
    mov rcx, [rdi + at_rip]
    mov rdi, [rdi + at_rdi]
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
